//! Places for requests that wait for admission: so many in all, and no more than its share for one client.
//!
//! A place is taken before a request is queued and given back when it is admitted or ends, so that the queue is bounded and a
//! client that fills its share is refused while others are not. Nothing here waits for the model thread.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ids::ClientId;

use super::engine::{EngineError, EngineLimits};

/// All places.
#[derive(Clone, Debug)]
pub(super) struct WaitingPlaces {
    limits: EngineLimits,
    counts: Arc<Mutex<Counts>>,
}

#[derive(Debug, Default)]
struct Counts {
    taken: u32,
    /// Of the clients that have any.
    taken_by: BTreeMap<ClientId, u32>,
    refused: u64,
}

/// One place; dropping it gives it back.
#[derive(Debug)]
pub struct WaitingPlace {
    client: ClientId,
    counts: Arc<Mutex<Counts>>,
}

impl WaitingPlaces {
    pub(super) fn new(limits: EngineLimits) -> Self {
        Self { limits, counts: Arc::default() }
    }

    /// Takes a place for one request of `client`.
    ///
    /// # Errors
    /// `QueueFull` or `ShareFull`; either counts as refused.
    pub(super) fn take(&self, client: ClientId) -> Result<WaitingPlace, EngineError> {
        let mut counts = lock(&self.counts);
        let of_client = counts.taken_by.get(&client).copied().unwrap_or(0);
        let refusal = if counts.taken >= self.limits.waiting_max {
            EngineError::QueueFull { waiting: counts.taken }
        } else if of_client >= self.limits.client_waiting_max {
            EngineError::ShareFull { waiting: of_client }
        } else {
            counts.taken += 1;
            counts.taken_by.insert(client, of_client + 1);
            return Ok(WaitingPlace { client, counts: Arc::clone(&self.counts) });
        };
        counts.refused += 1;
        Err(refusal)
    }

    pub(super) fn taken(&self) -> u32 {
        lock(&self.counts).taken
    }

    /// Requests that found no place.
    pub(super) fn refused(&self) -> u64 {
        lock(&self.counts).refused
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        let mut counts = lock(&self.counts);
        counts.taken -= 1;
        let of_client = counts.taken_by.get_mut(&self.client).expect("a client with a place is counted");
        *of_client -= 1;
        if *of_client == 0 {
            counts.taken_by.remove(&self.client);
        }
    }
}

fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    // Nothing that holds the lock can panic between two of its changes.
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_share_refuses_its_client_alone_and_a_full_queue_everybody() {
        let limits = EngineLimits { waiting_max: 3, client_waiting_max: 2, ..EngineLimits::default() };
        let places = WaitingPlaces::new(limits);
        let [greedy, modest] = [ClientId(0), ClientId(1)];
        let held = [places.take(greedy).unwrap(), places.take(greedy).unwrap()];
        assert_eq!(places.take(greedy).unwrap_err(), EngineError::ShareFull { waiting: 2 });
        let other = places.take(modest).unwrap();
        assert_eq!(places.take(modest).unwrap_err(), EngineError::QueueFull { waiting: 3 });
        assert_eq!((places.taken(), places.refused()), (3, 2));
        drop(held);
        places.take(modest).unwrap();
        drop(other);
        assert_eq!(places.taken(), 0);
        assert!(lock(&places.counts).taken_by.is_empty());
    }
}
