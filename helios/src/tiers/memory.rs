//! The memory tier: copies of checkpoints in this process's memory.
//!
//! Its buffers are of two sizes, a page's and a row's. They are allocated as they are first needed and kept for reuse, and all of
//! them together with what names them never exceed the budget.

use std::sync::Arc;

use super::catalog::{Catalog, Costs, Released};
use super::{Checkpoint, Counters, Geometry, TierError};
use crate::device::Placement;
use crate::ids::Digest;

/// A generous bound of what the catalog takes for a checkpoint, and for each page that it names.
const CHECKPOINT_RECORD_BYTES: u64 = 512;
const PAGE_NAME_BYTES: u64 = 256;

type Buffer = Box<[u8]>;

/// A part of a checkpoint, as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Page(Digest),
    Row,
}

/// Writes a part's bytes.
pub type Fill<'a> = dyn FnMut(Part, &mut [u8]) -> Result<(), TierError> + 'a;

/// Checkpoints in memory.
pub struct MemoryTier {
    geometry: Geometry,
    catalog: Catalog<Buffer>,
    spare_pages: Vec<Buffer>,
    spare_rows: Vec<Buffer>,
    dropped: Vec<Digest>,
    pub(super) counters: Counters,
}

impl MemoryTier {
    /// An empty tier of at most `budget_bytes`.
    ///
    /// # Errors
    /// [`TierError::UnifiedMemory`] for a device that the tier would take memory from rather than add to.
    pub fn new(budget_bytes: u64, geometry: Geometry, placement: Placement) -> Result<Self, TierError> {
        if placement == Placement::Unified {
            return Err(TierError::UnifiedMemory);
        }
        let costs = Costs {
            page_bytes: geometry.page_bytes as u64,
            checkpoint_bytes: geometry.row_bytes as u64 + CHECKPOINT_RECORD_BYTES,
            name_bytes: PAGE_NAME_BYTES,
        };
        Ok(Self {
            geometry,
            catalog: Catalog::new(budget_bytes, costs),
            spare_pages: Vec::new(),
            spare_rows: Vec::new(),
            dropped: Vec::new(),
            counters: Counters::default(),
        })
    }

    /// Holds a checkpoint. `fill` writes each part that is not here yet, and an error of it leaves the tier without
    /// the checkpoint.
    pub fn store(&mut self, checkpoint: &Arc<Checkpoint>, fill: &mut Fill<'_>) -> Result<(), TierError> {
        let key = checkpoint.key;
        if self.catalog.touch(key) {
            return Ok(());
        }
        let stored = self.catalog.claim(checkpoint).and_then(|released| {
            self.put_away(released);
            let filled = self.fill(key, fill);
            if filled.is_err() {
                let released = self.catalog.release(key);
                self.put_away(released);
            }
            filled
        });
        match stored {
            Ok(()) => self.counters.stores += 1,
            Err(_) => self.counters.store_failures += 1,
        }
        stored
    }

    /// Whether a checkpoint is here.
    pub fn contains(&self, key: Digest) -> bool {
        self.catalog.checkpoint(key).is_some()
    }

    /// Marks a checkpoint as used now. Returns whether it is here.
    pub fn touch(&mut self, key: Digest) -> bool {
        self.catalog.touch(key)
    }

    /// A page that some checkpoint here names.
    pub fn page(&self, page: Digest) -> Option<&[u8]> {
        self.catalog.page(page).map(|bytes| &**bytes)
    }

    /// A checkpoint's row.
    pub fn row(&self, key: Digest) -> Option<&[u8]> {
        self.catalog.row(key).map(|bytes| &**bytes)
    }

    /// Keys of checkpoints that had to go since the last call.
    pub fn take_dropped(&mut self) -> Vec<Digest> {
        std::mem::take(&mut self.dropped)
    }

    /// What the tier holds and has done.
    pub fn counters(&self) -> Counters {
        let (checkpoints, pages) = self.catalog.counts();
        Counters {
            is_on: true,
            bytes: self.catalog.bytes(),
            budget_bytes: self.catalog.budget_bytes(),
            checkpoints,
            pages,
            ..self.counters
        }
    }

    fn fill(&mut self, key: Digest, fill: &mut Fill<'_>) -> Result<(), TierError> {
        let missing = self.catalog.missing(key);
        self.trim(missing.len());
        for page in missing {
            let mut bytes = take(&mut self.spare_pages, self.geometry.page_bytes);
            let filled = fill(Part::Page(page), &mut bytes);
            match filled {
                Ok(()) => self.catalog.fill_page(page, bytes),
                Err(error) => {
                    self.spare_pages.push(bytes);
                    return Err(error);
                }
            }
        }
        let mut bytes = take(&mut self.spare_rows, self.geometry.row_bytes);
        match fill(Part::Row, &mut bytes) {
            Ok(()) => self.catalog.complete(key, bytes),
            Err(error) => {
                self.spare_rows.push(bytes);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Frees spare buffers until what is here, what a claim for `pages` pages and a row will take and the rest of the spare
    /// buffers fit the budget together.
    fn trim(&mut self, pages: usize) {
        loop {
            let (spare_pages, spare_rows) =
                (self.spare_pages.len().saturating_sub(pages), self.spare_rows.len().saturating_sub(1));
            let spare_bytes = spare_pages * self.geometry.page_bytes + spare_rows * self.geometry.row_bytes;
            if self.catalog.bytes() + spare_bytes as u64 <= self.catalog.budget_bytes() {
                return;
            }
            let spare = if spare_pages > 0 { &mut self.spare_pages } else { &mut self.spare_rows };
            drop(spare.pop());
        }
    }

    fn put_away(&mut self, released: Released<Buffer>) {
        for (key, row) in released.checkpoints {
            if let Some(row) = row {
                self.spare_rows.push(row);
                self.dropped.push(key);
                self.counters.drops += 1;
            }
        }
        self.spare_pages.extend(released.pages.into_iter().map(|(_, bytes)| bytes));
    }
}

fn take(spare: &mut Vec<Buffer>, bytes: usize) -> Buffer {
    spare.pop().unwrap_or_else(|| vec![0; bytes].into_boxed_slice())
}

#[cfg(test)]
impl MemoryTier {
    /// Checks that buffers and records fit the budget, and the catalog's own invariants.
    pub fn check_integrity(&self) {
        self.catalog.check_integrity(&[]);
        let spare_bytes = self.spare_pages.len() * self.geometry.page_bytes
            + self.spare_rows.len() * self.geometry.row_bytes;
        assert!(self.catalog.bytes() + spare_bytes as u64 <= self.catalog.budget_bytes());
    }
}
