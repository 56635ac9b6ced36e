//! The order of what is in flight: which bytes of the staging ring are in use, and which events are still to come.
//!
//! Pure bookkeeping. Submissions are numbered from 1 on; a mark is an event that is recorded behind some of them, and once
//! it is passed, they are complete and their staged bytes free again. Marks are passed in the order in which they were set.

use std::collections::VecDeque;

/// What was submitted and not seen complete.
pub struct InFlight {
    submitted: u64,
    completed: u64,
    in_flight_max: u32,
    marks: VecDeque<Mark>,
    next_event: usize,
    ring_bytes: u64,
    /// Bytes of the ring that were ever taken and ever given back, the skipped ones at its end included.
    taken: u64,
    given_back: u64,
}

/// An event behind submission `number`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub number: u64,
    /// The event's place in the pool.
    pub event: usize,
    taken: u64,
}

impl InFlight {
    /// Room for `in_flight_max` submissions, as many events, and a ring of `ring_bytes`.
    pub fn new(in_flight_max: u32, ring_bytes: u64) -> Self {
        Self {
            submitted: 0,
            completed: 0,
            in_flight_max,
            marks: VecDeque::with_capacity(in_flight_max as usize),
            next_event: 0,
            ring_bytes,
            taken: 0,
            given_back: 0,
        }
    }

    /// The number of the last submission.
    pub fn submitted(&self) -> u64 {
        self.submitted
    }

    /// Whether submission `number` and all before it are known to be complete.
    pub fn is_complete(&self, number: u64) -> bool {
        number <= self.completed
    }

    /// Whether another submission may be made now.
    pub fn has_room(&self) -> bool {
        self.submitted - self.completed < u64::from(self.in_flight_max)
    }

    /// Where `bytes` in one piece can be staged now, if there is room for them.
    pub fn stage(&mut self, bytes: u64) -> Option<u64> {
        let start = self.taken % self.ring_bytes;
        let skipped = if start + bytes <= self.ring_bytes { 0 } else { self.ring_bytes - start };
        if self.taken - self.given_back + skipped + bytes > self.ring_bytes {
            return None;
        }
        self.taken += skipped + bytes;
        Some((self.taken - bytes) % self.ring_bytes)
    }

    /// Counts a submission and returns its number.
    pub fn submit(&mut self) -> u64 {
        self.submitted += 1;
        self.submitted
    }

    /// Whether something was submitted behind the last mark.
    pub fn has_unmarked(&self) -> bool {
        self.submitted > self.marks.back().map_or(self.completed, |mark| mark.number)
    }

    /// The event to record behind everything submitted so far. There is one whenever something is unmarked.
    pub fn mark(&mut self) -> usize {
        assert!(
            self.has_unmarked(),
            "a mark stands behind a submission of its own, so there are enough events"
        );
        let event = self.next_event;
        self.next_event = (event + 1) % self.in_flight_max as usize;
        self.marks.push_back(Mark { number: self.submitted, event, taken: self.taken });
        event
    }

    /// The first mark that stands behind submission `number`.
    pub fn mark_behind(&self, number: u64) -> Option<Mark> {
        let first = self.marks.partition_point(|mark| mark.number < number);
        self.marks.get(first).copied()
    }

    /// The oldest mark that is not passed.
    pub fn oldest(&self) -> Option<Mark> {
        self.marks.front().copied()
    }

    /// A mark is passed, and all before it are.
    pub fn pass(&mut self, mark: Mark) {
        while self.marks.front().is_some_and(|first| first.number <= mark.number) {
            self.marks.pop_front();
        }
        self.completed = mark.number;
        self.given_back = mark.taken;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staged_bytes_are_in_one_piece_and_come_back_behind_their_mark() {
        let mut flight = InFlight::new(8, 10);
        assert_eq!(flight.stage(6), Some(0));
        flight.submit();
        flight.mark();
        assert_eq!(flight.stage(4), Some(6));
        flight.submit();
        flight.mark();
        assert_eq!(flight.stage(1), None);
        flight.pass(flight.oldest().unwrap());
        // Four bytes are in use at the end, so the ring starts over.
        assert_eq!(flight.stage(5), Some(0));
        assert_eq!(flight.stage(2), None);
        assert_eq!(flight.stage(1), Some(5));
    }

    #[test]
    fn a_piece_that_does_not_fit_before_the_end_skips_it() {
        let mut flight = InFlight::new(8, 10);
        assert_eq!(flight.stage(7), Some(0));
        flight.submit();
        flight.mark();
        flight.pass(flight.oldest().unwrap());
        assert_eq!(flight.stage(5), Some(0));
        // Three are skipped and five in use.
        assert_eq!(flight.stage(3), None);
        assert_eq!(flight.stage(2), Some(5));
    }

    #[test]
    fn marks_are_found_by_number_and_passed_in_order() {
        let mut flight = InFlight::new(3, 1);
        assert!(!flight.has_unmarked());
        let first = flight.submit();
        let second = flight.submit();
        assert_eq!(flight.mark_behind(first), None);
        assert_eq!(flight.mark(), 0);
        let third = flight.submit();
        assert!(!flight.has_room());
        assert!(flight.has_unmarked());
        assert_eq!(flight.mark(), 1);
        assert_eq!(flight.mark_behind(first).unwrap().number, second);
        let mark = flight.mark_behind(third).unwrap();
        flight.pass(mark);
        assert!(flight.is_complete(first) && flight.is_complete(third) && flight.has_room());
        assert_eq!(flight.oldest(), None);
        for event in [2, 0, 1] {
            flight.submit();
            assert_eq!(flight.mark(), event);
        }
        assert!(!flight.has_room());
    }
}
