//! What one tier holds: checkpoints in the order of their use, and the pages that they share.
//!
//! A page is counted once, however many checkpoints name it, and is here while one of them is. The catalog decides what has to go
//! for a new checkpoint; `B` stands for the bytes themselves, which its owner keeps in memory or on disk.
//!
//! Invariants: after a claim, the cost of everything claimed is at most the budget; every page has as many references as the
//! checkpoints name it; a checkpoint is found only once its row and all of its pages are here.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::{Checkpoint, TierError};
use crate::ids::Digest;

/// What things take of a budget.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    pub page_bytes: u64,
    /// A checkpoint's row and whatever else it takes beside its pages.
    pub checkpoint_bytes: u64,
    /// Each page's name in a checkpoint.
    pub name_bytes: u64,
}

/// Checkpoints and pages of one tier.
pub struct Catalog<B> {
    costs: Costs,
    budget_bytes: u64,
    entries: HashMap<Digest, Entry<B>>,
    /// Keys by their last use, the oldest first.
    by_use: BTreeMap<u64, Digest>,
    pages: HashMap<Digest, Page<B>>,
    uses: u64,
    /// What the entries take without their pages.
    entries_bytes: u64,
}

struct Entry<B> {
    checkpoint: Arc<Checkpoint>,
    last_use: u64,
    row: Option<B>,
}

struct Page<B> {
    references: u32,
    bytes: Option<B>,
}

/// What a catalog let go of.
#[must_use = "bytes that are not put away leak"]
pub struct Released<B> {
    /// Checkpoints, each with its row if it was complete.
    pub checkpoints: Vec<(Digest, Option<B>)>,
    pub pages: Vec<(Digest, B)>,
}

impl<B> Default for Released<B> {
    fn default() -> Self {
        Self { checkpoints: Vec::new(), pages: Vec::new() }
    }
}

impl<B> Catalog<B> {
    pub fn new(budget_bytes: u64, costs: Costs) -> Self {
        Self {
            costs,
            budget_bytes,
            entries: HashMap::new(),
            by_use: BTreeMap::new(),
            pages: HashMap::new(),
            uses: 0,
            entries_bytes: 0,
        }
    }

    /// Makes room for a checkpoint that is not here and counts it as here. Its pages and its row are to follow.
    pub fn claim(&mut self, checkpoint: &Arc<Checkpoint>) -> Result<Released<B>, TierError> {
        let key = checkpoint.key;
        assert!(!self.entries.contains_key(&key), "a checkpoint is claimed once");
        let distinct: HashSet<&Digest> = checkpoint.pages.iter().collect();
        let bytes = self.entry_bytes(checkpoint) + distinct.len() as u64 * self.costs.page_bytes;
        if bytes > self.budget_bytes {
            return Err(TierError::TooLarge { key, bytes, budget_bytes: self.budget_bytes });
        }
        self.uses += 1;
        self.by_use.insert(self.uses, key);
        self.entries_bytes += self.entry_bytes(checkpoint);
        for &page in &checkpoint.pages {
            self.pages.entry(page).or_insert(Page { references: 0, bytes: None }).references += 1;
        }
        let entry = Entry { checkpoint: Arc::clone(checkpoint), last_use: self.uses, row: None };
        self.entries.insert(key, entry);
        let mut released = Released::default();
        while self.bytes() > self.budget_bytes {
            let (_, &oldest) = self.by_use.first_key_value().expect("the new checkpoint alone fits");
            self.remove(oldest, &mut released);
        }
        Ok(released)
    }

    /// Takes `bytes` off the budget for good. The next claim lets go of what no longer fits.
    pub fn withhold(&mut self, bytes: u64) {
        self.budget_bytes = self.budget_bytes.saturating_sub(bytes);
    }

    /// Lets go of a checkpoint and of the pages that no other names.
    pub fn release(&mut self, key: Digest) -> Released<B> {
        let mut released = Released::default();
        self.remove(key, &mut released);
        released
    }

    /// Pages that a claimed checkpoint names and that are not here, each once, in the chain's order.
    pub fn missing(&self, key: Digest) -> Vec<Digest> {
        let Some(entry) = self.entries.get(&key) else { return Vec::new() };
        let mut seen = HashSet::new();
        let pages = entry.checkpoint.pages.iter().copied();
        pages.filter(|&page| self.page(page).is_none() && seen.insert(page)).collect()
    }

    /// The bytes of a page that a claimed checkpoint names have come.
    pub fn fill_page(&mut self, page: Digest, bytes: B) {
        let page = self.pages.get_mut(&page).expect("a checkpoint in the catalog names the page");
        assert!(page.bytes.replace(bytes).is_none(), "a page is filled once");
    }

    /// The row of a claimed checkpoint has come, after all of its pages.
    pub fn complete(&mut self, key: Digest, row: B) {
        let entry = self.entries.get_mut(&key).expect("the checkpoint was claimed");
        assert!(entry.row.replace(row).is_none(), "a checkpoint is completed once");
    }

    /// A page's bytes are gone. Returns them and the complete checkpoints that name it, the oldest first.
    pub fn lose_page(&mut self, digest: Digest) -> (Option<B>, Vec<Digest>) {
        let bytes = self.pages.get_mut(&digest).and_then(|page| page.bytes.take());
        let names = |entry: &Entry<B>| entry.row.is_some() && entry.checkpoint.pages.contains(&digest);
        let keys = self.by_use.values().copied().filter(|key| names(&self.entries[key]));
        let keys = keys.collect();
        (bytes, keys)
    }

    /// Marks a complete checkpoint as used now. Returns whether it is here.
    pub fn touch(&mut self, key: Digest) -> bool {
        let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.row.is_some()) else {
            return false;
        };
        self.uses += 1;
        self.by_use.remove(&entry.last_use);
        self.by_use.insert(self.uses, key);
        entry.last_use = self.uses;
        true
    }

    /// A complete checkpoint.
    pub fn checkpoint(&self, key: Digest) -> Option<&Arc<Checkpoint>> {
        self.entries.get(&key).filter(|entry| entry.row.is_some()).map(|entry| &entry.checkpoint)
    }

    /// All complete checkpoints, the least recently used first.
    pub fn checkpoints(&self) -> impl Iterator<Item = &Arc<Checkpoint>> {
        self.by_use.values().filter_map(|&key| self.checkpoint(key))
    }

    /// A page that is here, whether or not a complete checkpoint names it.
    pub fn page(&self, page: Digest) -> Option<&B> {
        self.pages.get(&page).and_then(|page| page.bytes.as_ref())
    }

    /// The row of a complete checkpoint.
    pub fn row(&self, key: Digest) -> Option<&B> {
        self.entries.get(&key).and_then(|entry| entry.row.as_ref())
    }

    /// What everything claimed takes.
    pub fn bytes(&self) -> u64 {
        self.entries_bytes + self.pages.len() as u64 * self.costs.page_bytes
    }

    pub fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    /// Checkpoints and pages, those that are still to come included.
    pub fn counts(&self) -> (u64, u64) {
        (self.entries.len() as u64, self.pages.len() as u64)
    }

    fn entry_bytes(&self, checkpoint: &Checkpoint) -> u64 {
        self.costs.checkpoint_bytes + checkpoint.pages.len() as u64 * self.costs.name_bytes
    }

    fn remove(&mut self, key: Digest, released: &mut Released<B>) {
        let Some(entry) = self.entries.remove(&key) else { return };
        self.by_use.remove(&entry.last_use);
        self.entries_bytes -= self.entry_bytes(&entry.checkpoint);
        for &digest in &entry.checkpoint.pages {
            let page = self.pages.get_mut(&digest).expect("a named page is in the catalog");
            page.references -= 1;
            if page.references == 0 {
                let bytes = self.pages.remove(&digest).and_then(|page| page.bytes);
                released.pages.extend(bytes.map(|bytes| (digest, bytes)));
            }
        }
        released.checkpoints.push((key, entry.row));
    }
}

#[cfg(test)]
impl<B> Catalog<B> {
    /// Checks the invariants that the module names; `pending` are checkpoints that were claimed and not yet completed.
    pub fn check_integrity(&self, pending: &[Digest]) {
        assert!(self.bytes() <= self.budget_bytes, "{} of {}", self.bytes(), self.budget_bytes);
        assert_eq!(self.by_use.len(), self.entries.len());
        let mut references: HashMap<Digest, u32> = HashMap::new();
        let mut entries_bytes = 0;
        for (&last_use, key) in &self.by_use {
            let entry = &self.entries[key];
            assert_eq!((entry.last_use, entry.checkpoint.key), (last_use, *key));
            assert_eq!(entry.row.is_none(), pending.contains(key));
            entries_bytes += self.entry_bytes(&entry.checkpoint);
            for page in &entry.checkpoint.pages {
                *references.entry(*page).or_default() += 1;
                assert!(entry.row.is_none() || self.page(*page).is_some(), "a complete checkpoint is whole");
            }
        }
        assert_eq!(entries_bytes, self.entries_bytes);
        let counted = self.pages.iter().map(|(&digest, page)| (digest, page.references)).collect();
        assert_eq!(references, counted);
    }
}
