//! What is given up for room: only what nobody borrows and no step in flight can reference.
//!
//! Pages come from the leaf that was used least recently, for only leaves give pages back: an ancestor's pages are its
//! descendants' too. One that a transfer reads goes last. Rows come from thinning first: a checkpoint between its parent and its only child costs little to lose, the
//! less the closer those two are, and every endpoint stays.

use crate::ids::SnapshotId;

use super::checkpoints::{Checkpoint, PrefixCache};
use super::pool::Owner;

impl PrefixCache {
    /// Pages that [`PrefixCache::take_page`] can hand out one after another, if `keep` is pinned before.
    pub fn room(&self, keep: Option<SnapshotId>) -> u32 {
        let mut is_held = vec![false; self.checkpoints.len()];
        for (snapshot, checkpoint) in self.published() {
            if checkpoint.pins == 0 && checkpoint.last_use <= self.completed && keep != Some(snapshot) {
                continue;
            }
            let mut next = Some(snapshot);
            while let Some(held) = next.filter(|held| !is_held[held.0 as usize]) {
                is_held[held.0 as usize] = true;
                next = self.checkpoint(held).parent;
            }
        }
        let unheld = self.published().filter(|(snapshot, _)| !is_held[snapshot.0 as usize]);
        self.pages.available() + unheld.map(|(_, checkpoint)| checkpoint.pages.len() as u32).sum::<u32>()
    }

    /// Gives up the leaf that was used least recently; whether there was one.
    pub(super) fn evict_for_page(&mut self) -> bool {
        let Some(leaf) = self.oldest_leaf() else { return false };
        self.evict_leaf(leaf);
        self.stats.evicted_for_pages += 1;
        true
    }

    /// Gives up a checkpoint for its row; whether there was one to give up.
    pub(super) fn evict_for_snapshot(&mut self) -> bool {
        if let Some(snapshot) = self.thinnest() {
            self.thin(snapshot);
            self.stats.thinned += 1;
        } else if let Some(leaf) = self.oldest_leaf() {
            self.evict_leaf(leaf);
            self.stats.evicted_for_snapshots += 1;
        } else {
            return false;
        }
        true
    }

    /// The removable checkpoint whose neighbours are closest; roots only where there is no other, older ones on ties.
    fn thinnest(&self) -> Option<SnapshotId> {
        let is_removable = |one: &Checkpoint| one.children == 1 && one.copies == 0 && self.is_unused(one);
        let removable = self.published().filter(|(_, one)| is_removable(one));
        let best = removable.min_by_key(|&(snapshot, one)| {
            let start = one.parent.map_or(0, |parent| self.checkpoint(parent).name.consumed);
            let end = self.checkpoint(self.only_child(snapshot)).name.consumed;
            (one.parent.is_none(), end - start, one.used)
        });
        best.map(|(snapshot, _)| snapshot)
    }

    fn oldest_leaf(&self) -> Option<SnapshotId> {
        let leaves = self.published().filter(|(_, one)| one.children == 0 && self.is_unused(one));
        leaves.min_by_key(|(_, one)| (one.copies > 0, one.used)).map(|(snapshot, _)| snapshot)
    }

    fn evict_leaf(&mut self, leaf: SnapshotId) {
        let checkpoint = self.retire(leaf);
        self.stats.pages_cached -= checkpoint.pages.len() as u32;
        if checkpoint.copies > 0 {
            self.evicted_copies.push(leaf);
        }
        for page in checkpoint.pages {
            self.pages.release(page, Owner::Cache, checkpoint.last_use);
        }
        if let Some(parent) = checkpoint.parent {
            self.checkpoint_mut(parent).children -= 1;
        }
    }

    /// Removes a checkpoint with one child, which takes over its pages and its place.
    fn thin(&mut self, snapshot: SnapshotId) {
        let child = self.only_child(snapshot);
        let Checkpoint { parent, pages, .. } = self.retire(snapshot);
        let child = self.checkpoint_mut(child);
        child.pages.splice(0..0, pages);
        child.parent = parent;
    }

    fn only_child(&self, parent: SnapshotId) -> SnapshotId {
        let mut children = self.published().filter(|(_, one)| one.parent == Some(parent));
        children.next().expect("the checkpoint has a child").0
    }

    fn is_unused(&self, checkpoint: &Checkpoint) -> bool {
        checkpoint.pins == 0 && checkpoint.last_use <= self.completed
    }

    pub(super) fn published(&self) -> impl Iterator<Item = (SnapshotId, &Checkpoint)> {
        let numbered = (0..).map(SnapshotId).zip(&self.checkpoints);
        numbered.filter_map(|(snapshot, checkpoint)| Some((snapshot, checkpoint.as_ref()?)))
    }
}
