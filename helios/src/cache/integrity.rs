//! The cache's invariants, checked whole after every step of a test or simulation.

use crate::ids::{PageId, RequestId, SnapshotId};

use super::checkpoints::PrefixCache;
use super::pool::{IntegrityError, Owner};

/// What requests hold, by their own account.
#[derive(Clone, Debug, Default)]
pub struct Holdings {
    /// Pages for a request's own use.
    pub pages: Vec<(RequestId, PageId)>,
    /// Rows that a request's state is being frozen into.
    pub snapshots: Vec<(RequestId, SnapshotId)>,
    /// Checkpoints that requests have pinned, once for each pin.
    pub pins: Vec<SnapshotId>,
}

impl PrefixCache {
    /// Checks every invariant of the checkpoints and of the pools below them.
    pub fn check_integrity(&self, holdings: &Holdings) -> Result<(), IntegrityError> {
        let of_requests = |&(request, resource): &(RequestId, PageId)| (Owner::Request(request), resource);
        let mut pages: Vec<_> = holdings.pages.iter().map(of_requests).collect();
        pages.extend(self.published().flat_map(|(_, one)| &one.pages).map(|&page| (Owner::Cache, page)));
        self.pages.check_integrity(&pages)?;
        let mut snapshots: Vec<_> = holdings
            .snapshots
            .iter()
            .map(|&(request, snapshot)| (Owner::Request(request), snapshot))
            .collect();
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
        let parent = one.parent.map(|parent| self.checkpoints[parent.0 as usize].as_ref());
        if self.index.get(&one.name) != Some(snapshot) {
            Err("cannot be found")
        } else if one.children as usize != children {
            Err("has another number of children")
        } else if one.pins as usize != pins {
            Err("has another number of pins")
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
