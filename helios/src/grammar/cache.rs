//! Compiled constraints by their source, the least recently used ones given up first.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Constraint;

/// Holds at most so many constraints, and so many bytes of source.
pub(super) struct Cache {
    /// The most recently used is last.
    entries: VecDeque<(String, Arc<Constraint>)>,
    bytes: usize,
    entries_max: usize,
    bytes_max: usize,
}

impl Cache {
    pub(super) fn new(entries_max: usize, bytes_max: usize) -> Self {
        Self { entries: VecDeque::new(), bytes: 0, entries_max, bytes_max }
    }

    pub(super) fn find(&mut self, key: &str) -> Option<Arc<Constraint>> {
        let index = self.entries.iter().position(|(held, _)| held == key)?;
        let entry = self.entries.remove(index)?;
        let found = entry.1.clone();
        self.entries.push_back(entry);
        Some(found)
    }

    /// Keeps a constraint unless its source alone exceeds the bound.
    pub(super) fn insert(&mut self, key: String, start: Arc<Constraint>) {
        if key.len() > self.bytes_max || self.find(&key).is_some() {
            return;
        }
        self.bytes += key.len();
        self.entries.push_back((key, start));
        while self.entries.len() > self.entries_max || self.bytes > self.bytes_max {
            let Some((oldest, _)) = self.entries.pop_front() else { return };
            self.bytes -= oldest.len();
        }
    }
}
