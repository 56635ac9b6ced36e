//! A timeline of what was launched: how long the device ran it, and how long the device did not run anything before it.
//!
//! It is there only where the log takes it, which is decided when a core is loaded (`FLARE_LOG=info,helios::device=trace`); elsewhere
//! no event is made or recorded for it. Two events stand around each launch, in the order of the stream, so what the runtime
//! copies to the device between two launches counts as a gap. On an idle device a launch begins when it is announced, and its time
//! has the driver's part in it; where launches wait in line, it has not.

use std::collections::VecDeque;
use std::sync::Arc;

use super::context::Context;
use super::stream::{Event, Stream};
use crate::device::part::Part;
use crate::device::{COMMANDS_MAX, DeviceError, ProgramId};

/// The events of launches, of which as many may be in flight as of submissions.
pub(super) struct Timeline {
    /// Launches whose end was not seen, oldest first.
    in_flight: VecDeque<Lap>,
    /// The last launch whose end was seen, from which the next one's gap is measured.
    last: Option<Lap>,
    free: Vec<Lap>,
}

/// One launch, from its beginning to its end.
struct Lap {
    begin: Event,
    end: Event,
    program: ProgramId,
    part: Part,
    /// Of the submission.
    number: u64,
}

impl Timeline {
    /// A timeline, if the log takes it. Everything that it needs is made here. The context is bound.
    pub fn new(context: &Arc<Context>) -> Result<Option<Self>, DeviceError> {
        if !tracing::enabled!(tracing::Level::TRACE) {
            return Ok(None);
        }
        // One beyond those in flight is the last that was seen.
        let laps_max = COMMANDS_MAX as usize + 1;
        let free = (0..laps_max).map(|_| Lap::new(context)).collect::<Result<_, _>>()?;
        Ok(Some(Self { in_flight: VecDeque::with_capacity(laps_max), last: None, free }))
    }

    /// A launch is submitted next.
    pub fn begin(&mut self, stream: &Stream) -> Result<(), DeviceError> {
        self.free.last().expect("there is a lap for every submission in flight").begin.record(stream)
    }

    /// The launch was submitted, as submission `number`.
    pub fn end(
        &mut self,
        stream: &Stream,
        program: ProgramId,
        part: Part,
        number: u64,
    ) -> Result<(), DeviceError> {
        let lap = self.free.pop().expect("`begin` found one");
        lap.end.record(stream)?;
        self.in_flight.push_back(Lap { program, part, number, ..lap });
        Ok(())
    }

    /// Logs every launch that is complete. `name` gives a program's.
    pub fn log<'a>(
        &mut self,
        is_complete: impl Fn(u64) -> bool,
        name: impl Fn(ProgramId) -> &'a str,
    ) -> Result<(), DeviceError> {
        while self.in_flight.front().is_some_and(|lap| is_complete(lap.number))
            && let Some(lap) = self.in_flight.pop_front()
        {
            let run_us = lap.end.since_us(&lap.begin)?;
            let gap_us = self.last.as_ref().map(|last| lap.begin.since_us(&last.end)).transpose()?;
            let (program, part) = (name(lap.program), lap.part.name());
            tracing::trace!(program, part, gap_us, run_us, "a launch is complete");
            self.free.extend(self.last.replace(lap));
        }
        Ok(())
    }
}

impl Lap {
    fn new(context: &Arc<Context>) -> Result<Self, DeviceError> {
        let (begin, end) = (Event::timed(context)?, Event::timed(context)?);
        Ok(Self { begin, end, program: ProgramId(0), part: Part::Whole, number: 0 })
    }
}
