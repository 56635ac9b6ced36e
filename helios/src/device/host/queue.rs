//! The bounded queue between an executor's owner and its execution thread.
//!
//! Commands run in the order in which they were submitted. Uploaded bytes are copied into a ring that is allocated once, so
//! submitting never allocates and a full ring is reported rather than grown. A submission's number is its fence: the
//! fence is passed once that submission and all before it are done.
//!
//! The execution thread spins briefly for the next command, because consecutive steps are microseconds apart and waking a
//! thread takes tens of them; then it sleeps, so an idle server takes no processor time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::device::part::Part;
use crate::device::{COMMANDS_MAX, DeviceError, ProgramId};

/// About 20 µs: longer than the gap between pipelined steps, shorter than anyone would notice on an idle machine.
const SPINS: u32 = 1000;

/// Where an upload goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Index of a buffer.
    pub buffer: usize,
    pub offset_bytes: u64,
}

/// The queue and its staging ring; shared by one submitter and one execution thread.
pub struct Queue {
    state: Mutex<State>,
    submitted: Condvar,
    completed: Condvar,
    /// Numbers of the last submission and of the last one done, beside the lock for spinning and polling.
    last_submitted: AtomicU64,
    last_completed: AtomicU64,
}

struct State {
    commands: VecDeque<Command>,
    staging: Staging,
    execution: Execution,
    stopping: bool,
    waiters: u32,
}

/// What the execution thread does.
#[derive(PartialEq, Eq)]
enum Execution {
    Awake,
    Asleep,
    Ended,
}

enum Command {
    Upload { target: Target, bytes: usize },
    Launch(ProgramId, Part),
}

impl Queue {
    /// A queue whose uploads in flight may take `staging_bytes` together.
    pub fn new(staging_bytes: usize) -> Self {
        let state = State {
            commands: VecDeque::with_capacity(COMMANDS_MAX as usize),
            staging: Staging::new(staging_bytes),
            execution: Execution::Awake,
            stopping: false,
            waiters: 0,
        };
        Self {
            state: Mutex::new(state),
            submitted: Condvar::new(),
            completed: Condvar::new(),
            last_submitted: AtomicU64::new(0),
            last_completed: AtomicU64::new(0),
        }
    }

    /// Submits a copy of `bytes` to `target`.
    pub fn upload(&self, target: Target, bytes: &[u8]) -> Result<(), DeviceError> {
        let mut state = self.open_for_submission()?;
        if !state.staging.push(bytes) {
            return Err(DeviceError::Busy { in_flight_max: COMMANDS_MAX });
        }
        self.submit(state, Command::Upload { target, bytes: bytes.len() });
        Ok(())
    }

    /// Submits a part of a program and returns its number.
    pub fn launch(&self, program: ProgramId, part: Part) -> Result<u64, DeviceError> {
        let state = self.open_for_submission()?;
        Ok(self.submit(state, Command::Launch(program, part)))
    }

    /// The number of the last submission.
    pub fn last_submitted(&self) -> u64 {
        self.last_submitted.load(Ordering::Acquire)
    }

    /// Whether submission `number` and all before it are done.
    pub fn is_complete(&self, number: u64) -> Result<bool, DeviceError> {
        let complete = || self.last_completed.load(Ordering::Acquire) >= number;
        if complete() {
            return Ok(true);
        }
        match self.lock().execution {
            Execution::Ended if !complete() => Err(DeviceError::Stopped),
            _ => Ok(complete()),
        }
    }

    /// Blocks until submission `number` and all before it are done.
    pub fn wait(&self, number: u64, timeout: Duration) -> Result<(), DeviceError> {
        let pending = |state: &mut State| {
            state.execution != Execution::Ended && self.last_completed.load(Ordering::Acquire) < number
        };
        let mut state = self.lock();
        state.waiters += 1;
        let (mut state, waited) = self
            .completed
            .wait_timeout_while(state, timeout, pending)
            .unwrap_or_else(PoisonError::into_inner);
        state.waiters -= 1;
        drop(state);
        if waited.timed_out() {
            let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
            return Err(DeviceError::Timeout { timeout_ms });
        }
        self.is_complete(number).map(|_| ())
    }

    /// Lets the execution thread end once everything submitted is done.
    pub fn stop(&self) {
        self.lock().stopping = true;
        self.submitted.notify_one();
    }

    /// For the execution thread: copies uploads through `copy` until a launch is next, and returns it with its number; `None`
    /// once the queue has stopped and is empty. `copy` gets the bytes in two pieces, either of which may be empty.
    pub fn next(&self, mut copy: impl FnMut(Target, [&[u8]; 2])) -> Option<(ProgramId, Part, u64)> {
        self.spin();
        let mut state = self.lock();
        loop {
            let waiting = state.commands.len() as u64;
            match state.commands.pop_front() {
                Some(Command::Launch(program, part)) => {
                    return Some((program, part, self.last_submitted() - waiting + 1));
                }
                Some(Command::Upload { target, bytes }) => {
                    copy(target, state.staging.front(bytes));
                    state.staging.pop(bytes);
                    self.mark(&state, self.last_submitted() - waiting + 1);
                }
                None if state.stopping => return None,
                None => state = self.sleep(state),
            }
        }
    }

    /// For the execution thread: submission `number` is done.
    pub fn complete(&self, number: u64) {
        self.mark(&self.lock(), number);
    }

    /// For the execution thread's last moment: nothing more will be executed.
    pub fn end(&self) {
        self.lock().execution = Execution::Ended;
        self.completed.notify_all();
    }

    fn open_for_submission(&self) -> Result<MutexGuard<'_, State>, DeviceError> {
        let state = self.lock();
        if state.execution == Execution::Ended {
            return Err(DeviceError::Stopped);
        }
        if state.commands.len() >= COMMANDS_MAX as usize {
            return Err(DeviceError::Busy { in_flight_max: COMMANDS_MAX });
        }
        Ok(state)
    }

    fn submit(&self, mut state: MutexGuard<'_, State>, command: Command) -> u64 {
        state.commands.push_back(command);
        let number = self.last_submitted() + 1;
        self.last_submitted.store(number, Ordering::Release);
        let asleep = state.execution == Execution::Asleep;
        drop(state);
        if asleep {
            self.submitted.notify_one();
        }
        number
    }

    fn mark(&self, state: &State, number: u64) {
        self.last_completed.store(number, Ordering::Release);
        if state.waiters > 0 {
            self.completed.notify_all();
        }
    }

    fn spin(&self) {
        for _ in 0..SPINS {
            if self.last_submitted() > self.last_completed.load(Ordering::Relaxed) {
                return;
            }
            std::hint::spin_loop();
        }
    }

    fn sleep<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.execution = Execution::Asleep;
        let mut state = self.submitted.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.execution = Execution::Awake;
        state
    }

    /// The lock is held over plain moves of plain data only, so a panic elsewhere leaves the state whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A ring of bytes, first in first out.
struct Staging {
    bytes: Box<[u8]>,
    start: usize,
    used: usize,
}

impl Staging {
    fn new(capacity: usize) -> Self {
        Self { bytes: vec![0; capacity].into_boxed_slice(), start: 0, used: 0 }
    }

    /// Appends `bytes`, or reports that they do not fit now.
    fn push(&mut self, bytes: &[u8]) -> bool {
        let capacity = self.bytes.len();
        if bytes.len() > capacity - self.used {
            return false;
        }
        let from = (self.start + self.used) % capacity.max(1);
        let (head, tail) = bytes.split_at(bytes.len().min(capacity - from));
        self.bytes[from..from + head.len()].copy_from_slice(head);
        self.bytes[..tail.len()].copy_from_slice(tail);
        self.used += bytes.len();
        true
    }

    /// The oldest `length` bytes, in two pieces.
    fn front(&self, length: usize) -> [&[u8]; 2] {
        let head = length.min(self.bytes.len() - self.start);
        [&self.bytes[self.start..self.start + head], &self.bytes[..length - head]]
    }

    fn pop(&mut self, length: usize) {
        self.used -= length;
        self.start = (self.start + length) % self.bytes.len().max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(offset_bytes: u64) -> Target {
        Target { buffer: 0, offset_bytes }
    }

    #[test]
    fn commands_come_out_in_order_across_the_rings_end() {
        let queue = Queue::new(10);
        let mut seen = Vec::new();
        for round in 0..20u8 {
            queue.upload(target(0), &[round; 3]).unwrap();
            queue.upload(target(3), &[round + 100; 4]).unwrap();
            let number = queue.launch(ProgramId(u32::from(round)), Part::Whole).unwrap();
            let copy = |at: Target, pieces: [&[u8]; 2]| seen.push((at.offset_bytes, pieces.concat()));
            assert_eq!(queue.next(copy), Some((ProgramId(u32::from(round)), Part::Whole, number)));
            assert_eq!(queue.is_complete(number), Ok(false));
            assert_eq!(queue.is_complete(number - 1), Ok(true));
            queue.complete(number);
            assert_eq!(queue.is_complete(number), Ok(true));
        }
        let expected: Vec<_> =
            (0..20u8).flat_map(|round| [(0, vec![round; 3]), (3, vec![round + 100; 4])]).collect();
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_full_ring_and_a_full_queue_are_busy() {
        let queue = Queue::new(8);
        let busy = DeviceError::Busy { in_flight_max: COMMANDS_MAX };
        queue.upload(target(0), &[0; 6]).unwrap();
        assert_eq!(queue.upload(target(0), &[0; 3]), Err(busy.clone()));
        for _ in 1..COMMANDS_MAX {
            queue.launch(ProgramId(0), Part::Whole).unwrap();
        }
        assert_eq!(queue.launch(ProgramId(0), Part::Whole), Err(busy.clone()));
        assert_eq!(queue.upload(target(0), &[]), Err(busy));
        queue.next(|_, _| ()).unwrap();
        queue.upload(target(0), &[0; 8]).unwrap();
    }

    #[test]
    fn waiting_ends_with_the_thread_and_with_time() {
        let queue = Queue::new(8);
        let number = queue.launch(ProgramId(0), Part::Whole).unwrap();
        let timeout = Duration::from_millis(5);
        assert_eq!(queue.wait(number, timeout), Err(DeviceError::Timeout { timeout_ms: 5 }));
        queue.end();
        assert_eq!(queue.wait(number, Duration::from_secs(60)), Err(DeviceError::Stopped));
        assert_eq!(queue.launch(ProgramId(0), Part::Whole), Err(DeviceError::Stopped));
    }

    #[test]
    fn a_stopped_queue_is_drained_first() {
        let queue = Queue::new(8);
        queue.launch(ProgramId(4), Part::Whole).unwrap();
        queue.stop();
        assert_eq!(queue.next(|_, _| ()), Some((ProgramId(4), Part::Whole, 1)));
        queue.complete(1);
        assert_eq!(queue.next(|_, _| ()), None);
    }
}
