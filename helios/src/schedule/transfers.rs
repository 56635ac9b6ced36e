//! Copies between the device and the tiers: what is stored, what is fetched, and who waits for it.
//!
//! Sans-IO: orders go out, answers come in as events. A store reads a published checkpoint, which stays for as long as nobody
//! needs its room. A fetch belongs to a ticket, which holds the row and the pages that it writes; requests that want the same
//! prefix wait for one ticket and own none of it, so that a request that leaves harms no other. What a fetch has brought becomes an
//! ordinary checkpoint before any request can start from it; a fetch that fails, or takes too long, leaves nothing, and who
//! waited for it computes.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cache::{History, Owner, PrefixCache, PrefixChain, PrefixIndex, PrefixName, Published};
use crate::ids::{Digest, PageId, SnapshotId, StepId, TransferId};

use super::pages::admission_pages;
use super::queue::Fetch;
use super::scheduler::Scheduler;
use super::sequence::{Sequence, Tokens};

/// How long a request waits for a tier before it computes what it waits for.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// What requests wait for that come before the tiers have said what they hold; no transfer's id, which start at 1.
const LISTING: TransferId = TransferId(0);

/// What the tiers are to do, in this order, and before any step that is submitted later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransferOrder {
    /// Copy a checkpoint out: its row, and those of its pages that the tiers lack.
    Store { transfer: TransferId, name: PrefixName, snapshot: SnapshotId, pages: Vec<(PageId, Digest)> },
    /// Copy a checkpoint in.
    Fetch { transfer: TransferId, name: PrefixName, snapshot: SnapshotId, pages: Vec<(PageId, Digest)> },
    /// From here on touch nothing of the device for this transfer.
    Abandon { transfer: TransferId },
}

/// Every transfer under way, and what the tiers hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Transfers {
    /// Whether published checkpoints are to be stored.
    pub(super) is_on: bool,
    held: PrefixIndex<()>,
    names: BTreeMap<Digest, PrefixName>,
    stores: BTreeMap<TransferId, Store>,
    pub(super) tickets: BTreeMap<TransferId, Ticket>,
    pub(super) orders: Vec<TransferOrder>,
    /// Until when requests wait to hear what a former process stored, while that is not known.
    list_by: Option<Duration>,
    last: TransferId,
    pub(super) stats: TransferStats,
}

#[derive(Clone, Debug)]
struct Store {
    name: PrefixName,
    /// What it reads, until it is abandoned.
    snapshot: Option<SnapshotId>,
}

/// A fetch, and what it writes.
#[derive(Clone, Debug)]
pub(super) struct Ticket {
    name: PrefixName,
    /// The checkpoint on the device that the fetched one continues; pinned.
    pub(super) parent: Option<SnapshotId>,
    pub(super) snapshot: SnapshotId,
    pub(super) pages: Vec<PageId>,
    deadline: Duration,
}

/// Counters of transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferStats {
    pub stored: u64,
    pub stores_failed: u64,
    pub fetched: u64,
    /// Fetches that failed, took too long or made room.
    pub fetches_failed: u64,
    /// Requests that waited for a fetch that was under way.
    pub joined: u64,
}

impl Transfers {
    fn next(&mut self) -> TransferId {
        self.last = TransferId(self.last.0 + 1);
        self.last
    }

    /// Checkpoints that stores read.
    pub(super) fn copied(&self) -> impl Iterator<Item = SnapshotId> {
        self.stores.values().filter_map(|store| store.snapshot)
    }

    /// Orders a checkpoint that was just published to be stored.
    pub(super) fn store(
        &mut self,
        cache: &mut PrefixCache,
        page_tokens: u32,
        name: PrefixName,
        snapshot: SnapshotId,
        chain: &PrefixChain,
        history: &impl History,
    ) {
        if !self.is_on || self.names.contains_key(&name.digest) {
            return;
        }
        let pages = named_pages(&cache.pages_of(snapshot), 0, page_tokens, chain, history);
        let transfer = self.next();
        cache.hold_copy(snapshot);
        self.stores.insert(transfer, Store { name, snapshot: Some(snapshot) });
        self.orders.push(TransferOrder::Store { transfer, name, snapshot, pages });
    }

    fn hold(&mut self, name: PrefixName) {
        if self.names.insert(name.digest, name).is_none() {
            self.held.insert(name, ());
        }
    }

    fn drop_held(&mut self, digest: Digest) {
        if let Some(name) = self.names.remove(&digest) {
            self.held.remove(&name);
        }
    }

    /// Opens a ticket for what continues `base`; `None` when every row is in use. There is room for the pages.
    fn open(
        &mut self,
        cache: &mut PrefixCache,
        page_tokens: u32,
        name: PrefixName,
        base: Option<(SnapshotId, u32)>,
        now: Duration,
        (chain, history): (&PrefixChain, &Tokens),
    ) -> Option<TransferId> {
        let transfer = self.next();
        let owner = Owner::Transfer(transfer);
        let (parent, base_tokens) = base.unzip();
        parent.into_iter().for_each(|parent| cache.pin(parent));
        let Some(snapshot) = cache.take_snapshot(owner) else {
            parent.into_iter().for_each(|parent| cache.unpin(parent, StepId(0)));
            return None;
        };
        let first = base_tokens.unwrap_or(0) / page_tokens;
        let mut take = |_| cache.take_page(owner).expect("there is room for a request that starts from it");
        let pages: Vec<PageId> = (first..name.consumed / page_tokens).map(&mut take).collect();
        let named = named_pages(&pages, first, page_tokens, chain, history);
        self.orders.push(TransferOrder::Fetch { transfer, name, snapshot, pages: named });
        let deadline = now.saturating_add(FETCH_TIMEOUT);
        self.tickets.insert(transfer, Ticket { name, parent, snapshot, pages, deadline });
        Some(transfer)
    }

    fn ticket_for(&self, name: &PrefixName) -> Option<TransferId> {
        self.tickets.iter().find(|(_, ticket)| ticket.name == *name).map(|(&transfer, _)| transfer)
    }
}

impl Scheduler {
    /// Stores published checkpoints from here on; without this call the device's cache is the only one. What a former process
    /// stored is known after [`super::Event::TiersListed`], if the tiers are still `listing`.
    pub fn use_tiers(&mut self, listing: bool, now: Duration) {
        self.transfers.is_on = true;
        self.transfers.list_by = listing.then(|| now.saturating_add(FETCH_TIMEOUT));
    }

    /// Takes what the tiers are to do, before a step that was planned is submitted.
    pub fn drain_orders(&mut self) -> std::vec::Drain<'_, TransferOrder> {
        self.abandon_evicted();
        self.transfers.orders.drain(..)
    }

    /// Whether the tiers owe an answer, which lets requests go on, as its deadline does.
    pub fn awaits_tiers(&self) -> bool {
        !self.transfers.tickets.is_empty() || (self.transfers.list_by.is_some() && !self.waiting.is_empty())
    }

    /// A tier holds a checkpoint.
    pub(super) fn tier_holds(&mut self, name: PrefixName) {
        self.transfers.hold(name);
    }

    /// Everything that a former process stored is known.
    pub(super) fn tiers_listed(&mut self) {
        self.transfers.list_by = None;
        self.waiting.reconsider(LISTING);
    }

    /// No tier holds a checkpoint any more.
    pub(super) fn tier_dropped(&mut self, digest: Digest) {
        self.transfers.drop_held(digest);
    }

    /// No transfer will be answered any more.
    pub(super) fn tiers_stopped(&mut self) {
        let transfers: Vec<TransferId> =
            self.transfers.stores.keys().chain(self.transfers.tickets.keys()).copied().collect();
        for transfer in transfers {
            self.transferred(transfer, false);
        }
        self.tiers_listed();
        let Transfers { is_on, held, names, .. } = &mut self.transfers;
        *is_on = false;
        *held = PrefixIndex::default();
        names.clear();
    }

    /// A transfer is over; one that was abandoned may still be answered.
    pub(super) fn transferred(&mut self, transfer: TransferId, is_done: bool) {
        if let Some(store) = self.transfers.stores.remove(&transfer) {
            if let Some(snapshot) = store.snapshot {
                self.cache.release_copy(snapshot);
            }
            let stats = &mut self.transfers.stats;
            *(if is_done { &mut stats.stored } else { &mut stats.stores_failed }) += 1;
            if is_done {
                self.transfers.hold(store.name);
            }
        } else if let Some(ticket) = self.transfers.tickets.remove(&transfer) {
            self.close_ticket(transfer, ticket, is_done);
        }
    }

    /// Opens tickets for the requests that are next and for which a tier holds more than the device.
    pub(super) fn fetch(&mut self, now: Duration) {
        self.expire_tickets(now);
        if let Some(list_by) = self.transfers.list_by {
            if now < list_by {
                return self.waiting.hold(LISTING);
            }
            self.tiers_listed();
        }
        if self.transfers.names.is_empty() {
            return;
        }
        let mut next = self.slots.available();
        for place in 0..self.waiting.len() {
            let is_full = self.transfers.tickets.len() >= self.geometry.slots as usize;
            if next == 0 || is_full {
                return;
            }
            match self.waiting.entry_mut(place).fetch {
                Fetch::Waits(_) => continue,
                Fetch::Undecided => self.consider(place, now),
                Fetch::Decided => {}
            }
            next -= 1;
        }
    }

    /// Opens or joins a ticket for a waiting request, if that is worth it and there is room.
    fn consider(&mut self, place: usize, now: Duration) {
        let (cache, transfers) = (&mut self.cache, &mut self.transfers);
        let entry = self.waiting.entry_mut(place);
        let base = entry.base(cache);
        let (parent, base_tokens) = base.unzip();
        let base_tokens = base_tokens.unwrap_or(0);
        let Sequence { chain, tokens, .. } = &entry.sequence;
        let found = transfers.held.deepest(chain, tokens.len(), tokens).map(|(name, ())| name);
        // What one small chunk computes is not worth a wait.
        let worth_tokens = base_tokens + self.geometry.prefill[0].size;
        let Some(name) = found.filter(|name| name.consumed >= worth_tokens) else {
            entry.fetch = Fetch::Decided;
            return;
        };
        if let Some(ticket) = transfers.ticket_for(&name) {
            entry.fetch = Fetch::Waits(ticket);
            transfers.stats.joined += 1;
            return;
        }
        let page_tokens = self.geometry.page_tokens;
        let shared = base_tokens / page_tokens;
        if admission_pages(&self.geometry, &entry.sequence).saturating_sub(shared) > cache.room(parent) {
            return;
        }
        entry.fetch = match transfers.open(cache, page_tokens, name, base, now, (chain, tokens)) {
            Some(ticket) => Fetch::Waits(ticket),
            None => Fetch::Decided,
        };
    }

    /// Gives up a fetch for the room that it takes; whether there was one.
    pub(super) fn abandon_ticket(&mut self) -> bool {
        let newest = self.transfers.tickets.keys().next_back().copied();
        newest.into_iter().for_each(|transfer| self.give_up(transfer));
        newest.is_some()
    }

    /// Tells the tiers which of the checkpoints that they read have been given up.
    fn abandon_evicted(&mut self) {
        for snapshot in self.cache.drain_evicted_copies() {
            for (&transfer, store) in &mut self.transfers.stores {
                if store.snapshot == Some(snapshot) {
                    store.snapshot = None;
                    self.transfers.orders.push(TransferOrder::Abandon { transfer });
                }
            }
        }
    }

    fn expire_tickets(&mut self, now: Duration) {
        let due = |transfers: &Transfers| {
            transfers.tickets.iter().find(|(_, ticket)| ticket.deadline <= now).map(|(&transfer, _)| transfer)
        };
        while let Some(transfer) = due(&self.transfers) {
            self.give_up(transfer);
        }
    }

    /// Ends a fetch that is under way; it counts as failed, whatever its answer says.
    fn give_up(&mut self, transfer: TransferId) {
        self.transfers.orders.push(TransferOrder::Abandon { transfer });
        self.transferred(transfer, false);
    }

    fn close_ticket(&mut self, transfer: TransferId, ticket: Ticket, is_done: bool) {
        let owner = Owner::Transfer(transfer);
        let Ticket { name, parent, snapshot, pages, .. } = ticket;
        let is_published =
            is_done && self.cache.publish(owner, snapshot, name, parent, &pages) == Published::New;
        if is_published {
            self.cache.unpin(snapshot, StepId(0));
        } else {
            if !is_done {
                self.cache.release_snapshot(snapshot, owner, StepId(0));
            }
            pages.into_iter().for_each(|page| self.cache.release_page(page, owner, StepId(0)));
            parent.into_iter().for_each(|parent| self.cache.unpin(parent, StepId(0)));
        }
        self.waiting.decide(transfer);
        let stats = &mut self.transfers.stats;
        *(if is_done { &mut stats.fetched } else { &mut stats.fetches_failed }) += 1;
    }
}

/// Pages with the names of the prefixes that they end, from the history's page `first` on.
fn named_pages(
    pages: &[PageId],
    first: u32,
    page_tokens: u32,
    chain: &PrefixChain,
    history: &impl History,
) -> Vec<(PageId, Digest)> {
    let ends = (first + 1..).map(|number| number * page_tokens);
    pages.iter().zip(ends).map(|(&page, end)| (page, chain.name(end, history).digest)).collect()
}
