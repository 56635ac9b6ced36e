//! Opening a folder: what a former process stored is listed, and what is of no use is removed.
//!
//! Checkpoints are read whole, since they are small; of pages and rows only the length is looked at, because reading them
//! checks them. Recency is the time of the checkpoint's file.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use super::layout::{self, CoreFolder, Kind};
use super::{DiskTier, file};
use crate::ids::Digest;
use crate::tiers::Checkpoint;

/// A checkpoint's payload without its pages' names, in a file.
pub const LIST_BYTES_MIN: u64 = file::OVERHEAD_BYTES + 32 + 4;

/// Removes the files of all cores but one.
pub fn remove_other_cores(folder: &Path, core: Digest) {
    let cores = layout::cores(folder).unwrap_or_default();
    for other in cores.into_iter().filter(|&other| other != core) {
        match CoreFolder::new(folder, other).remove() {
            Ok(()) => tracing::info!(core = %other, "removed another core's prefix cache"),
            Err(error) => {
                tracing::warn!(%error, core = %other, "another core's prefix cache cannot be removed")
            }
        }
    }
}

impl DiskTier {
    /// Lists the folder into the empty catalog.
    pub(super) fn scan(&mut self) -> io::Result<()> {
        if let Err(error) = layout::remove_file(&self.folder.incoming()) {
            tracing::debug!(%error, "the next file replaces what a former process left half written");
        }
        let pages = self.whole_files(Kind::Page, self.geometry.page_bytes)?;
        let rows = self.whole_files(Kind::Row, self.geometry.row_bytes)?;
        let mut found = Vec::new();
        for (key, entry) in self.folder.files(Kind::Checkpoint)? {
            let checkpoint = self.read_checkpoint(key).filter(|checkpoint| {
                rows.contains(&key) && checkpoint.pages.iter().all(|page| pages.contains(page))
            });
            match checkpoint {
                Some(checkpoint) => {
                    let used = entry.metadata()?.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                    found.push((used, Arc::new(checkpoint)));
                }
                None => self.remove_file(Kind::Checkpoint, key),
            }
        }
        found.sort_by_key(|(used, checkpoint)| (*used, checkpoint.key));
        for (_, checkpoint) in &found {
            self.list(checkpoint);
        }
        self.remove_unlisted(found.iter().map(|(_, checkpoint)| checkpoint.key), pages, rows);
        Ok(())
    }

    /// Counts a checkpoint whose files are all here. Older ones may give way to it; their files stay until everything is listed,
    /// because younger checkpoints may name them too.
    fn list(&mut self, checkpoint: &Arc<Checkpoint>) {
        match self.catalog.claim(checkpoint) {
            Ok(released) => {
                for page in self.catalog.missing(checkpoint.key) {
                    self.catalog.fill_page(page, ());
                }
                self.catalog.complete(checkpoint.key, ());
                drop(released);
            }
            Err(error) => tracing::info!(%error, "a checkpoint on disk is removed"),
        }
    }

    /// Removes the files that no listed checkpoint needs.
    fn remove_unlisted(
        &mut self,
        checkpoints: impl Iterator<Item = Digest>,
        pages: BTreeSet<Digest>,
        rows: BTreeSet<Digest>,
    ) {
        for key in checkpoints {
            if self.catalog.checkpoint(key).is_none() {
                self.remove_file(Kind::Checkpoint, key);
            }
        }
        for key in rows {
            if self.catalog.checkpoint(key).is_none() {
                self.remove_file(Kind::Row, key);
            }
        }
        for page in pages {
            if self.catalog.page(page).is_none() {
                self.remove_file(Kind::Page, page);
            }
        }
        // Nobody has heard of what went before it was listed.
        self.dropped.clear();
    }

    fn read_checkpoint(&self, key: Digest) -> Option<Checkpoint> {
        let path = self.folder.file(Kind::Checkpoint, key);
        let payload =
            file::read_whole(&path, &self.label(Kind::Checkpoint, key), self.catalog.budget_bytes());
        let checkpoint =
            payload.inspect_err(|error| tracing::info!(%error, "a checkpoint on disk is removed"));
        decode(key, &checkpoint.ok()?)
    }

    /// Keys of files that hold `payload_bytes`. Others of the kind are removed.
    fn whole_files(&mut self, kind: Kind, payload_bytes: usize) -> io::Result<BTreeSet<Digest>> {
        let mut keys = BTreeSet::new();
        for (key, entry) in self.folder.files(kind)? {
            if entry.metadata()?.len() == payload_bytes as u64 + file::OVERHEAD_BYTES {
                keys.insert(key);
            } else {
                self.remove_file(kind, key);
            }
        }
        Ok(keys)
    }
}

/// A checkpoint's payload: its block, its consumed tokens, and the names of its pages.
pub fn encode(checkpoint: &Checkpoint) -> Vec<u8> {
    let mut payload = checkpoint.block.0.to_vec();
    payload.extend(checkpoint.consumed.to_le_bytes());
    payload.extend(checkpoint.pages.iter().flat_map(|page| page.0));
    payload
}

fn decode(key: Digest, payload: &[u8]) -> Option<Checkpoint> {
    let (block, rest) = payload.split_first_chunk::<32>()?;
    let (consumed, rest) = rest.split_first_chunk::<4>()?;
    let (pages, rest) = rest.as_chunks::<32>();
    rest.is_empty().then(|| Checkpoint {
        key,
        block: Digest(*block),
        consumed: u32::from_le_bytes(*consumed),
        pages: pages.iter().map(|&page| Digest(page)).collect(),
    })
}
