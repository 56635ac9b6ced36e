//! The cache's invariants, checked whole after every step of a test or simulation.

use crate::ids::{PageId, SnapshotId};

use super::checkpoints::PrefixCache;
use super::pool::{IntegrityError, Owner};

/// What requests and transfers hold, by their own account.
#[derive(Clone, Debug, Default)]
pub struct Holdings {
    /// Pages for an owner's own use.
    pub pages: Vec<(Owner, PageId)>,
    /// Rows that a state is being frozen or copied into.
    pub snapshots: Vec<(Owner, SnapshotId)>,
    /// Checkpoints that are pinned, once for each pin.
    pub pins: Vec<SnapshotId>,
    /// Checkpoints that transfers read, once for each transfer.
    pub copies: Vec<SnapshotId>,
}

impl PrefixCache {
    /// Checks every invariant of the checkpoints and of the pools below them.
    pub fn check_integrity(&self, holdings: &Holdings) -> Result<(), IntegrityError> {
        let mut pages = holdings.pages.clone();
        pages.extend(self.published().flat_map(|(_, one)| &one.pages).map(|&page| (Owner::Cache, page)));
        self.pages.check_integrity(&pages)?;
        let mut snapshots = holdings.snapshots.clone();
        snapshots.extend(self.published().map(|(snapshot, _)| (Owner::Cache, snapshot)));
        self.snapshots.check_integrity(&snapshots)?;

        for (snapshot, one) in self.published() {
            self.check_checkpoint(snapshot, holdings)
                .map_err(|problem| IntegrityError(format!("checkpoint {snapshot} {problem}: {one:?}")))?;
        }
        let checkpoints = self.published().count();
        let pages_cached: usize = self.published().map(|(_, one)| one.pages.len()).sum();
        let counted = (self.stats.checkpoints as usize, self.stats.pages_cached as usize);
        if counted != (checkpoints, pages_cached) || self.index.iter().count() != checkpoints {
            return Err(IntegrityError(format!(
                "{checkpoints} checkpoints and {pages_cached} pages are there and {counted:?} are counted"
            )));
        }
        Ok(())
    }

    fn check_checkpoint(&self, snapshot: SnapshotId, holdings: &Holdings) -> Result<(), &'static str> {
        let one = self.checkpoint(snapshot);
        let children = self.published().filter(|(_, other)| other.parent == Some(snapshot)).count();
        let pins = holdings.pins.iter().filter(|&&pinned| pinned == snapshot).count();
        let copies = holdings.copies.iter().filter(|&&copied| copied == snapshot).count();
        let parent = one.parent.map(|parent| self.checkpoints[parent.0 as usize].as_ref());
        if self.index.get(&one.name) != Some(snapshot) {
            Err("cannot be found")
        } else if one.children as usize != children {
            Err("has another number of children")
        } else if one.pins as usize != pins {
            Err("has another number of pins")
        } else if one.copies as usize != copies {
            Err("has another number of transfers")
        } else if parent
            .is_some_and(|parent| parent.is_none_or(|parent| parent.name.consumed >= one.name.consumed))
        {
            Err("is no deeper than its parent")
        } else if self.pages_of(snapshot).len() as u32 != one.name.consumed / self.page_tokens {
            Err("has other pages than its prefix's complete ones")
        } else {
            Ok(())
        }
    }
}
