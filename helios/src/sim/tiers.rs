//! Simulated tiers: they take orders, carry them out late, and lose, refuse and forget at random.
//!
//! A store must find what it reads unchanged until it has read it, and an abandoned transfer touches nothing any more; both are
//! checked.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cache::PrefixName;
use crate::ids::{Digest, PageId, SnapshotId, TransferId};
use crate::schedule::{Event, TransferOrder};

use super::model::{Model, Page, Snapshot};
use super::random::Random;

/// Checkpoints that the tiers keep at most.
const CHECKPOINTS_MAX: usize = 12;

#[derive(Clone, Debug)]
struct Held {
    name: PrefixName,
    pages: BTreeMap<Digest, Page>,
    row: Option<Snapshot>,
}

#[derive(Clone, Debug)]
struct Pending {
    order: TransferOrder,
    due: Duration,
    /// Of a store: what it will read.
    source: Option<Held>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct SimTiers {
    held: BTreeMap<Digest, Held>,
    pending: BTreeMap<TransferId, Pending>,
    /// Answers to what was refused or abandoned.
    answers: Vec<TransferId>,
    /// When what survived a restart will be known.
    listed_at: Option<Duration>,
}

impl SimTiers {
    /// Takes an order; a transfer that was abandoned answers later all the same.
    pub(crate) fn order(
        &mut self,
        order: TransferOrder,
        model: &mut Model,
        now: Duration,
        random: &mut Random,
    ) {
        match &order {
            TransferOrder::Abandon { transfer } => {
                if let Some(Pending { order: TransferOrder::Fetch { pages, .. }, .. }) =
                    self.pending.remove(transfer)
                {
                    // It was half done.
                    pages.iter().for_each(|&(page, _)| model.page_mut(page).fill(None));
                }
                self.answers.push(*transfer);
            }
            TransferOrder::Store { transfer, .. } | TransferOrder::Fetch { transfer, .. } => {
                if random.chance(10) {
                    self.answers.push(*transfer);
                    return;
                }
                let source = match &order {
                    TransferOrder::Store { name, snapshot, pages, .. } => {
                        Some(read(*name, *snapshot, pages, model))
                    }
                    _ => None,
                };
                let slowest = if random.chance(3) { 20_000_000 } else { 20_000 };
                let due = now + Duration::from_micros(u64::from(random.within(0..=slowest)));
                self.pending.insert(*transfer, Pending { order, due, source });
            }
        }
    }

    /// Carries out what is due, and says what happened.
    pub(crate) fn answer(
        &mut self,
        model: &mut Model,
        now: Duration,
        random: &mut Random,
    ) -> Vec<Event<'static>> {
        let mut events: Vec<Event<'static>> = Vec::new();
        if self.listed_at.is_some_and(|due| due <= now) {
            self.listed_at = None;
            events.extend(self.held.values().map(|held| Event::TierHolds { name: held.name }));
            events.push(Event::TiersListed);
        }
        let answers = self.answers.drain(..);
        events.extend(answers.map(|transfer| Event::Transferred { transfer, is_done: false }));
        let due: Vec<TransferId> =
            self.pending.iter().filter(|(_, one)| one.due <= now).map(|(&transfer, _)| transfer).collect();
        for transfer in due {
            let Pending { order, source, .. } = self.pending.remove(&transfer).unwrap();
            let is_done = match order {
                TransferOrder::Store { name, snapshot, pages, .. } => {
                    let source = source.unwrap();
                    let now = read(name, snapshot, &pages, model);
                    assert_eq!((&now.pages, &now.row), (&source.pages, &source.row), "a source changed");
                    let is_done = !random.chance(10);
                    if is_done {
                        self.held.insert(name.digest, source);
                    }
                    is_done
                }
                TransferOrder::Fetch { name, snapshot, pages, .. } => {
                    !random.chance(10) && self.write(name, snapshot, &pages, model)
                }
                TransferOrder::Abandon { .. } => unreachable!("nothing pends for it"),
            };
            events.push(Event::Transferred { transfer, is_done });
        }
        while self.held.len() > CHECKPOINTS_MAX || (!self.held.is_empty() && random.chance(1)) {
            let place = random.within(0..=self.held.len() as u32 - 1) as usize;
            let digest = *self.held.keys().nth(place).unwrap();
            self.held.remove(&digest);
            events.push(Event::TierDropped { digest });
        }
        events
    }

    /// A new process: what is held survives, and will be listed, sometimes after requests have given it up.
    pub(crate) fn restart(&mut self, now: Duration, random: &mut Random) {
        self.pending.clear();
        self.answers.clear();
        let slowest = if random.chance(10) { 20_000_000 } else { 20_000 };
        self.listed_at = Some(now + Duration::from_micros(u64::from(random.within(0..=slowest))));
    }

    fn write(
        &self,
        name: PrefixName,
        snapshot: SnapshotId,
        pages: &[(PageId, Digest)],
        model: &mut Model,
    ) -> bool {
        let Some(held) = self.held.get(&name.digest) else { return false };
        for (page, digest) in pages {
            model.page_mut(*page).clone_from(&held.pages[digest]);
        }
        model.snapshot_mut(snapshot).clone_from(&held.row);
        true
    }
}

fn read(name: PrefixName, snapshot: SnapshotId, pages: &[(PageId, Digest)], model: &mut Model) -> Held {
    let pages = pages.iter().map(|&(page, digest)| (digest, model.page_mut(page).clone())).collect();
    Held { name, pages, row: model.snapshot_mut(snapshot).clone() }
}
