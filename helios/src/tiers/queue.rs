//! The bounded queue of the tier thread.
//!
//! Restores overtake stores, because a request waits for them. That is safe: a restore's destination is nobody's
//! source, and only what was stored is restored.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Restore, Store, TierError};

/// Stores that may wait at one time. Each pins its pages, so that waiting longer costs more than it is worth.
pub const STORES_MAX: usize = 16;
/// Restores that may wait at one time.
pub const RESTORES_MAX: usize = 64;

/// The queue, shared by whoever commands and the tier thread.
#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    restores: VecDeque<Restore>,
    stores: VecDeque<Store>,
    /// When to leave what is not done yet, once that has been said.
    close_by: Option<Duration>,
    has_ended: bool,
}

/// What the tier thread does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    Restore(Restore),
    Store(Store),
    /// Go on with the store that was begun.
    Continue,
    /// Leave everything and end.
    End,
}

impl Queue {
    /// Queues a store or refuses it at once.
    pub fn store(&self, store: Store) -> Result<(), TierError> {
        let mut state = self.open()?;
        if state.stores.len() >= STORES_MAX {
            return Err(TierError::QueueFull { queued_max: STORES_MAX });
        }
        state.stores.push_back(store);
        self.changed.notify_all();
        Ok(())
    }

    /// Queues a restore or refuses it at once.
    pub fn restore(&self, restore: Restore) -> Result<(), TierError> {
        let mut state = self.open()?;
        if state.restores.len() >= RESTORES_MAX {
            return Err(TierError::QueueFull { queued_max: RESTORES_MAX });
        }
        state.restores.push_back(restore);
        self.changed.notify_all();
        Ok(())
    }

    /// Takes no more; the tier thread ends once everything queued is done, and at `close_by` at the latest.
    pub fn close(&self, close_by: Duration) {
        let mut state = self.lock();
        state.close_by = Some(state.close_by.map_or(close_by, |earlier| earlier.min(close_by)));
        self.changed.notify_all();
    }

    /// For the tier thread: waits until there is something to do. `is_storing` says that a store was begun.
    pub fn next(&self, is_storing: bool, now: impl Fn() -> Duration) -> Next {
        let mut state = self.lock();
        loop {
            if state.close_by.is_some_and(|close_by| close_by <= now()) {
                return Next::End;
            }
            if let Some(restore) = state.restores.pop_front() {
                return Next::Restore(restore);
            }
            if is_storing {
                return Next::Continue;
            }
            if let Some(store) = state.stores.pop_front() {
                return Next::Store(store);
            }
            if state.close_by.is_some() {
                return Next::End;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// For the tier thread's last moment.
    pub fn end(&self) {
        self.lock().has_ended = true;
        self.changed.notify_all();
    }

    /// Blocks until the tier thread has ended. Returns false if it does not in time.
    pub fn wait_for_end(&self, timeout: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), timeout, |state| !state.has_ended);
        waited.unwrap_or_else(PoisonError::into_inner).0.has_ended
    }

    fn open(&self) -> Result<MutexGuard<'_, State>, TierError> {
        let state = self.lock();
        if state.has_ended || state.close_by.is_some() { Err(TierError::Stopped) } else { Ok(state) }
    }

    /// The lock is held over plain moves of plain data only, so a panic elsewhere leaves the state whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Digest, RowId, TransferId};

    fn store(number: u64) -> Store {
        let zero = Digest([0; 32]);
        Store {
            transfer: TransferId(number),
            key: zero,
            block: zero,
            consumed: 0,
            pages: Vec::new(),
            row: RowId(0),
        }
    }

    fn restore(number: u64) -> Restore {
        let transfer = TransferId(number);
        Restore { transfer, key: Digest([0; 32]), pages: Vec::new(), row: RowId(0) }
    }

    fn at(seconds: u64) -> impl Fn() -> Duration {
        move || Duration::from_secs(seconds)
    }

    #[test]
    fn restores_overtake_stores_even_one_that_was_begun() {
        let queue = Queue::default();
        queue.store(store(1)).unwrap();
        queue.store(store(2)).unwrap();
        queue.restore(restore(3)).unwrap();
        assert_eq!(queue.next(false, at(0)), Next::Restore(restore(3)));
        assert_eq!(queue.next(false, at(0)), Next::Store(store(1)));
        queue.restore(restore(4)).unwrap();
        assert_eq!(queue.next(true, at(0)), Next::Restore(restore(4)));
        assert_eq!(queue.next(true, at(0)), Next::Continue);
        assert_eq!(queue.next(false, at(0)), Next::Store(store(2)));
    }

    #[test]
    fn each_kind_has_its_bound() {
        let queue = Queue::default();
        for number in 0..STORES_MAX as u64 {
            queue.store(store(number)).unwrap();
        }
        assert_eq!(queue.store(store(0)), Err(TierError::QueueFull { queued_max: STORES_MAX }));
        for number in 0..RESTORES_MAX as u64 {
            queue.restore(restore(number)).unwrap();
        }
        assert_eq!(queue.restore(restore(0)), Err(TierError::QueueFull { queued_max: RESTORES_MAX }));
    }

    #[test]
    fn a_closed_queue_is_drained_until_its_time_is_over() {
        let queue = Queue::default();
        queue.store(store(1)).unwrap();
        queue.store(store(2)).unwrap();
        queue.close(Duration::from_secs(5));
        assert_eq!(queue.store(store(3)), Err(TierError::Stopped));
        assert_eq!(queue.restore(restore(3)), Err(TierError::Stopped));
        assert_eq!(queue.next(false, at(0)), Next::Store(store(1)));
        assert_eq!(queue.next(true, at(4)), Next::Continue);
        assert_eq!(queue.next(true, at(5)), Next::End);
        assert_eq!(queue.next(false, at(4)), Next::Store(store(2)));
        assert_eq!(queue.next(false, at(4)), Next::End);
        assert!(!queue.wait_for_end(Duration::ZERO));
        queue.end();
        assert!(queue.wait_for_end(Duration::from_secs(60)));
    }
}
