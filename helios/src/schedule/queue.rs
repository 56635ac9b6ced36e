//! Requests that wait for resources, in the order of their turns.
//!
//! Clients take turns. Each waiting request of a client belongs to another round; rounds follow each other, and within one
//! the order is that of arrival. So a client with many requests has one in each of the coming rounds, and another's only
//! request belongs to the round that is being admitted, or to the next if its client had its turn already. With one client
//! this is the order of arrival.
//!
//! A request that does not fit does not block smaller ones behind it, but each of them that is admitted first counts as
//! a bypass, and after [`BYPASSES_MAX`] nothing passes it any more: what runs ends, and it is next.

use std::collections::{BTreeSet, VecDeque};

use crate::cache::{IntegrityError, PrefixCache};
use crate::ids::{ClientId, RequestId, SnapshotId, TransferId};

use super::sequence::{Mask, Sequence};

/// Requests that may be admitted ahead of one that waits for pages.
pub const BYPASSES_MAX: u32 = 16;

/// Whether a request starts from what a tier holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fetch {
    Undecided,
    /// It is not considered before the ticket is closed.
    Waits(TransferId),
    /// It starts from what the device holds.
    Decided,
}

#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) sequence: Sequence,
    pub(super) fetch: Fetch,
    bypasses: u32,
    /// The deepest checkpoint of its history, as of a generation of the cache.
    base: Option<(u64, Option<(SnapshotId, u32)>)>,
}

impl Waiting {
    /// Whether it waits for something else than slots and pages: a ticket, or its mask after a preemption.
    fn is_held(&self) -> bool {
        let is_masked = self.sequence.mask.is_none_or(|mask| mask == Mask::Ready);
        matches!(self.fetch, Fetch::Waits(_)) || !is_masked
    }

    pub(super) fn base(&mut self, cache: &PrefixCache) -> Option<(SnapshotId, u32)> {
        let generation = cache.generation();
        let known = self.base.filter(|&(known, _)| known == generation);
        let (_, base) = known.unwrap_or_else(|| {
            let tokens = &self.sequence.tokens;
            self.sequence.chain.extend(tokens.len(), tokens);
            (generation, cache.find(&self.sequence.chain, tokens.len(), tokens))
        });
        self.base = Some((generation, base));
        base
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct WaitingQueue {
    entries: VecDeque<Waiting>,
    /// The round that is being admitted.
    round: u64,
    /// The clients that had their turn in it.
    served: BTreeSet<ClientId>,
}

impl WaitingQueue {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn sequences(&self) -> impl Iterator<Item = &Sequence> {
        self.entries.iter().map(|entry| &entry.sequence)
    }

    /// Puts a new sequence into the first round that its client has not had and waits for with no other.
    pub(super) fn push(&mut self, mut sequence: Sequence) {
        let client = sequence.client;
        let of_client = self.sequences().filter(|waiting| waiting.client == client);
        let after = of_client.map(|waiting| waiting.round + 1).max().unwrap_or(0);
        sequence.round = after.max(self.round + u64::from(self.served.contains(&client)));
        self.insert(sequence);
    }

    /// Puts a sequence where its turn is; a preempted one keeps the one that it had.
    pub(super) fn insert(&mut self, sequence: Sequence) {
        let place = self.entries.partition_point(|entry| turn(&entry.sequence) < turn(&sequence));
        self.entries.insert(place, Waiting { sequence, fetch: Fetch::Undecided, bypasses: 0, base: None });
    }

    /// Takes the first sequence that `fits` with its checkpoint and may go, counting a bypass for each one ahead of it.
    pub(super) fn take_first(
        &mut self,
        cache: &PrefixCache,
        fits: impl Fn(&Sequence, Option<(SnapshotId, u32)>) -> bool,
    ) -> Option<(Sequence, Option<(SnapshotId, u32)>)> {
        let mut chosen = None;
        for (index, entry) in self.entries.iter_mut().enumerate() {
            if entry.is_held() {
                continue;
            }
            let base = entry.base(cache);
            if fits(&entry.sequence, base) {
                chosen = Some((index, base));
                break;
            }
            if entry.bypasses >= BYPASSES_MAX {
                return None;
            }
        }
        let (chosen, base) = chosen?;
        let mut is_first = true;
        // One that is held would not have gone anyway.
        for bypassed in self.entries.range_mut(..chosen).filter(|entry| !entry.is_held()) {
            bypassed.bypasses += 1;
            is_first = false;
        }
        let Waiting { sequence, .. } = self.entries.remove(chosen)?;
        if is_first {
            self.serve(&sequence);
        }
        Some((sequence, base))
    }

    /// Counts a turn. What passed others took none, and what was preempted has had its own.
    fn serve(&mut self, sequence: &Sequence) {
        if sequence.round > self.round {
            self.round = sequence.round;
            self.served.clear();
        }
        if sequence.round == self.round {
            self.served.insert(sequence.client);
        }
    }

    pub(super) fn sequences_mut(&mut self) -> impl Iterator<Item = &mut Sequence> {
        self.entries.iter_mut().map(|entry| &mut entry.sequence)
    }

    pub(super) fn entry_mut(&mut self, place: usize) -> &mut Waiting {
        &mut self.entries[place]
    }

    /// Has everyone who is undecided wait for a ticket.
    pub(super) fn hold(&mut self, ticket: TransferId) {
        for entry in self.entries.iter_mut().filter(|entry| entry.fetch == Fetch::Undecided) {
            entry.fetch = Fetch::Waits(ticket);
        }
    }

    /// Has everyone who waits for a ticket decide anew.
    pub(super) fn reconsider(&mut self, ticket: TransferId) {
        for entry in self.entries.iter_mut().filter(|entry| entry.fetch == Fetch::Waits(ticket)) {
            entry.fetch = Fetch::Undecided;
        }
    }

    /// Lets go on who waits for a ticket.
    pub(super) fn decide(&mut self, ticket: TransferId) {
        for entry in self.entries.iter_mut().filter(|entry| entry.fetch == Fetch::Waits(ticket)) {
            entry.fetch = Fetch::Decided;
        }
    }

    pub(super) fn remove(&mut self, request: RequestId) -> Option<Sequence> {
        let index = self.entries.iter().position(|entry| entry.sequence.request == request)?;
        self.entries.remove(index).map(|entry| entry.sequence)
    }

    /// Removes the first sequence that `leaves`.
    pub(super) fn remove_first(&mut self, leaves: impl Fn(&Sequence) -> bool) -> Option<Sequence> {
        let index = self.entries.iter().position(|entry| leaves(&entry.sequence))?;
        self.entries.remove(index).map(|entry| entry.sequence)
    }

    pub(super) fn check_integrity(&self) -> Result<(), IntegrityError> {
        if !self.sequences().is_sorted_by(|earlier, later| turn(earlier) < turn(later)) {
            return Err(IntegrityError("the queue is not in the order of turns".into()));
        }
        let new = self.sequences().filter(|waiting| !waiting.is_announced);
        let mut turns: Vec<_> = new.map(|waiting| (waiting.client, waiting.arrival, waiting.round)).collect();
        turns.sort_unstable();
        if !turns.windows(2).all(|pair| pair[0].0 != pair[1].0 || pair[0].2 < pair[1].2) {
            return Err(IntegrityError("a client's requests are not in rounds of their own".into()));
        }
        if let Some(entry) = self.entries.iter().find(|entry| entry.bypasses > BYPASSES_MAX) {
            let (request, bypasses) = (entry.sequence.request, entry.bypasses);
            return Err(IntegrityError(format!("request {request} was bypassed {bypasses} times")));
        }
        Ok(())
    }
}

/// What waiting sequences are ordered by.
fn turn(sequence: &Sequence) -> (u64, u64) {
    (sequence.round, sequence.arrival)
}
