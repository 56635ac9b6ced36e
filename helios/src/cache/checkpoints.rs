//! Checkpoints on the device: a forest, whose pages and rows requests borrow.
//!
//! A checkpoint is named by the snapshot row that holds its continuation state, and owns the complete pages between its
//! parent's end and its own. What requests borrow they pin, and a pinned checkpoint keeps its row and, with those of its ancestors,
//! its pages. Invariants: a child has consumed more than its parent, a chain's pages are exactly the complete ones of its
//! prefix, one checkpoint a name, and every page and row of the device is free, retiring, a request's or a checkpoint's.

use crate::ids::{PageId, SnapshotId, StepId};

use super::index::PrefixIndex;
use super::pool::Owner;
use super::prefix::{History, PrefixChain, PrefixName};
use super::{PagePool, SnapshotPool};

#[derive(Clone, Debug)]
pub(super) struct Checkpoint {
    pub(super) name: PrefixName,
    pub(super) parent: Option<SnapshotId>,
    /// Checkpoints whose parent it is.
    pub(super) children: u32,
    /// Requests that borrow it.
    pub(super) pins: u32,
    /// Transfers that read it; unlike a pin, they do not keep it.
    pub(super) copies: u32,
    /// Complete pages after its parent's, in order of position.
    pub(super) pages: Vec<PageId>,
    /// When it was last borrowed, by the cache's own clock.
    pub(super) used: u64,
    /// The last step that may reference its row or its pages on behalf of a former borrower.
    pub(super) last_use: StepId,
}

/// What became of a checkpoint that was to be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// It can be found; the pages are its own from here on, and the request has it pinned.
    New,
    /// There is one of that name; only the row has gone back, and the request keeps its pages.
    Duplicate,
}

/// Gauges and counters of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    pub checkpoints: u32,
    /// Pages that checkpoints own.
    pub pages_cached: u32,
    pub published: u64,
    /// Captures of a prefix that had a checkpoint already.
    pub duplicates: u64,
    /// Leaves given up because pages were short.
    pub evicted_for_pages: u64,
    /// Leaves given up because snapshot rows were short.
    pub evicted_for_snapshots: u64,
    /// Interior checkpoints given up, whose descendants stay.
    pub thinned: u64,
}

/// The pages, the snapshot rows and the checkpoints of a device.
#[derive(Clone, Debug)]
pub struct PrefixCache {
    pub(super) page_tokens: u32,
    pub(super) pages: PagePool,
    pub(super) snapshots: SnapshotPool,
    /// By snapshot.
    pub(super) checkpoints: Vec<Option<Checkpoint>>,
    pub(super) index: PrefixIndex<SnapshotId>,
    pub(super) completed: StepId,
    pub(super) stats: CacheStats,
    pub(super) evicted_copies: Vec<SnapshotId>,
    clock: u64,
    generation: u64,
}

impl PrefixCache {
    /// Without snapshots nothing is ever published, and the cache is two pools.
    pub fn new(page_tokens: u32, pages: u32, snapshots: u32) -> Self {
        Self {
            page_tokens,
            pages: PagePool::new(pages),
            snapshots: SnapshotPool::new(snapshots),
            checkpoints: vec![None; snapshots as usize],
            index: PrefixIndex::default(),
            completed: StepId(0),
            stats: CacheStats::default(),
            evicted_copies: Vec::with_capacity(snapshots as usize),
            clock: 0,
            generation: 0,
        }
    }

    pub fn pages(&self) -> &PagePool {
        &self.pages
    }

    pub fn snapshots(&self) -> &SnapshotPool {
        &self.snapshots
    }

    pub fn stats(&self) -> CacheStats {
        self.stats
    }

    /// Changes whenever a search may give another answer than before.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The deepest checkpoint of a history's first `tokens` tokens, and the tokens that it has consumed.
    pub fn find(
        &self,
        chain: &PrefixChain,
        tokens: u32,
        history: &(impl History + ?Sized),
    ) -> Option<(SnapshotId, u32)> {
        self.index.deepest(chain, tokens, history).map(|(name, snapshot)| (snapshot, name.consumed))
    }

    /// Whether a prefix has a checkpoint already; if so, that counts as a use of it.
    pub fn refresh(&mut self, name: &PrefixName) -> bool {
        let existing = self.index.get(name);
        if let Some(existing) = existing {
            self.touch(existing);
            self.stats.duplicates += 1;
        }
        existing.is_some()
    }

    /// Keeps a checkpoint and its ancestors' pages for one more borrower.
    pub fn pin(&mut self, snapshot: SnapshotId) {
        self.checkpoint_mut(snapshot).pins += 1;
        self.touch(snapshot);
    }

    /// Gives a pin back; steps up to `last_use` may reference the checkpoint.
    pub fn unpin(&mut self, snapshot: SnapshotId, last_use: StepId) {
        let checkpoint = self.checkpoint_mut(snapshot);
        checkpoint.pins = checkpoint.pins.checked_sub(1).expect("a pin is given back once");
        checkpoint.last_use = checkpoint.last_use.max(last_use);
    }

    /// Notes a transfer that reads a checkpoint and its ancestors' pages.
    pub fn hold_copy(&mut self, snapshot: SnapshotId) {
        self.checkpoint_mut(snapshot).copies += 1;
    }

    /// A transfer reads a checkpoint no more.
    pub fn release_copy(&mut self, snapshot: SnapshotId) {
        let checkpoint = self.checkpoint_mut(snapshot);
        checkpoint.copies = checkpoint.copies.checked_sub(1).expect("a transfer ends once");
    }

    /// Checkpoints that were given up while transfers read them. Until these have stopped, nothing may be written to what
    /// they read.
    pub fn drain_evicted_copies(&mut self) -> std::vec::Drain<'_, SnapshotId> {
        self.evicted_copies.drain(..)
    }

    /// The pages of a checkpoint's whole chain, in order of position.
    pub fn pages_of(&self, snapshot: SnapshotId) -> Vec<PageId> {
        let mut segments = Vec::new();
        let mut next = Some(snapshot);
        while let Some(checkpoint) = next.map(|snapshot| self.checkpoint(snapshot)) {
            segments.push(checkpoint.pages.as_slice());
            next = checkpoint.parent;
        }
        segments.into_iter().rev().flatten().copied().collect()
    }

    /// Makes a snapshot that has been written findable. `pages` are the owner's complete pages after those of `parent`,
    /// which it has pinned; on success its pin moves from there to the new checkpoint.
    pub fn publish(
        &mut self,
        owner: Owner,
        snapshot: SnapshotId,
        name: PrefixName,
        parent: Option<SnapshotId>,
        pages: &[PageId],
    ) -> Published {
        if self.refresh(&name) {
            self.snapshots.release(snapshot, owner, self.completed);
            return Published::Duplicate;
        }
        for &page in pages {
            self.pages.transfer(page, owner, Owner::Cache);
        }
        self.snapshots.transfer(snapshot, owner, Owner::Cache);
        if let Some(parent) = parent {
            // The request's steps go on using the parent's pages, but through the new checkpoint's pin.
            self.unpin(parent, self.completed);
            self.checkpoint_mut(parent).children += 1;
        }
        self.checkpoints[snapshot.0 as usize] = Some(Checkpoint {
            name,
            parent,
            children: 0,
            pins: 1,
            copies: 0,
            pages: pages.to_vec(),
            used: 0,
            last_use: self.completed,
        });
        self.index.insert(name, snapshot);
        self.touch(snapshot);
        self.generation += 1;
        self.stats.published += 1;
        self.stats.checkpoints += 1;
        self.stats.pages_cached += pages.len() as u32;
        Published::New
    }

    /// A page, from an unused checkpoint if there is no free one.
    pub fn take_page(&mut self, owner: Owner) -> Option<PageId> {
        while self.pages.available() == 0 {
            if !self.evict_for_page() {
                return None;
            }
        }
        self.pages.take(owner)
    }

    /// A row that a state can be frozen into, from an unused checkpoint if there is no free one.
    pub fn take_snapshot(&mut self, owner: Owner) -> Option<SnapshotId> {
        if self.snapshots.available() == 0 && !self.evict_for_snapshot() {
            return None;
        }
        self.snapshots.take(owner)
    }

    /// Ends an owner's hold of a page that steps up to `last_use` may reference.
    pub fn release_page(&mut self, page: PageId, owner: Owner, last_use: StepId) {
        self.pages.release(page, owner, last_use);
    }

    /// Gives back a row that was not published.
    pub fn release_snapshot(&mut self, snapshot: SnapshotId, owner: Owner, last_use: StepId) {
        self.snapshots.release(snapshot, owner, last_use);
    }

    /// Everything submitted up to `step` is complete.
    pub fn complete(&mut self, step: StepId) {
        self.completed = self.completed.max(step);
        self.pages.complete(step);
        self.snapshots.complete(step);
    }

    pub(super) fn checkpoint(&self, snapshot: SnapshotId) -> &Checkpoint {
        self.checkpoints[snapshot.0 as usize].as_ref().expect("the snapshot is a published checkpoint's")
    }

    pub(super) fn checkpoint_mut(&mut self, snapshot: SnapshotId) -> &mut Checkpoint {
        self.checkpoints[snapshot.0 as usize].as_mut().expect("the snapshot is a published checkpoint's")
    }

    /// Takes a checkpoint out of the index and frees its row; what becomes of its pages is the caller's to say.
    pub(super) fn retire(&mut self, snapshot: SnapshotId) -> Checkpoint {
        let checkpoint =
            self.checkpoints[snapshot.0 as usize].take().expect("a published checkpoint retires");
        self.index.remove(&checkpoint.name);
        self.snapshots.release(snapshot, Owner::Cache, checkpoint.last_use);
        self.generation += 1;
        self.stats.checkpoints -= 1;
        checkpoint
    }

    /// Counts a use of a checkpoint as one of its ancestors too, so that a conversation ages as a whole.
    fn touch(&mut self, snapshot: SnapshotId) {
        self.clock += 1;
        let mut next = Some(snapshot);
        while let Some(snapshot) = next {
            let clock = self.clock;
            let checkpoint = self.checkpoint_mut(snapshot);
            checkpoint.used = clock;
            next = checkpoint.parent;
        }
    }
}
