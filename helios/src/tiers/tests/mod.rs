//! Both tiers against naive models, the disk tier against what disks do, and the thread on a device of plain bytes.
//!
//! What a page or row holds is a function of its name, so that every byte that comes back can be checked.

mod disk;
mod faults;
mod memory;
mod transfers;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sha2::Digest as _;

use super::{Checkpoint, DiskOptions, DiskTier, Geometry, TierError};
use crate::ids::Digest;

const GEOMETRY: Geometry = Geometry { page_bytes: 300, row_bytes: 100 };
const CORE: Digest = Digest([0xC0; 32]);
/// What a page takes on disk: whole blocks.
const PAGE_COST: u64 = 4096;

fn digest(name: &str) -> Digest {
    Digest(sha2::Sha256::digest(name).into())
}

/// Checkpoint `number` of a tree: three branches of up to five pages each, all on two common pages.
fn checkpoint(number: u32) -> Arc<Checkpoint> {
    let (branch, length) = (number % 3, number / 3 % 8);
    let page = |index: u32| match index {
        0 | 1 => digest(&format!("root page {index}")),
        _ => digest(&format!("page {index} of branch {branch}")),
    };
    Arc::new(Checkpoint {
        key: digest(&format!("checkpoint {number}")),
        block: digest(&format!("block of {number}")),
        consumed: number * 17,
        pages: (0..length).map(page).collect(),
    })
}

/// The bytes that belong to a name.
fn content(name: Digest, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| name.0[index % 32] ^ (index / 32) as u8).collect()
}

fn open(folder: &Path, budget_bytes: u64) -> DiskTier {
    try_open(folder, budget_bytes).unwrap()
}

fn try_open(folder: &Path, budget_bytes: u64) -> Result<DiskTier, TierError> {
    DiskTier::open(&DiskOptions { folder: folder.to_owned(), budget_bytes }, CORE, GEOMETRY)
}

/// Stores a checkpoint whole, or gives it up with the first error.
fn store(tier: &mut DiskTier, checkpoint: &Arc<Checkpoint>, now: Duration) -> Result<(), TierError> {
    if !tier.begin(checkpoint, now)? {
        return Ok(());
    }
    let key = checkpoint.key;
    let mut write = || {
        for page in tier.missing(key) {
            tier.write_page(page, &content(page, GEOMETRY.page_bytes), now)?;
        }
        tier.finish(checkpoint, &content(key, GEOMETRY.row_bytes), now)
    };
    write().inspect_err(|_| tier.abandon(key))
}

/// Reads a checkpoint whole and checks every byte.
fn read(tier: &mut DiskTier, checkpoint: &Checkpoint) -> Result<(), TierError> {
    let mut page = vec![0; GEOMETRY.page_bytes];
    for &name in &checkpoint.pages {
        tier.read_page(name, &mut page)?;
        assert_eq!(page, content(name, GEOMETRY.page_bytes));
    }
    let mut row = vec![0; GEOMETRY.row_bytes];
    tier.read_row(checkpoint.key, &mut row)?;
    assert_eq!(row, content(checkpoint.key, GEOMETRY.row_bytes));
    Ok(())
}

/// Where a file of [`CORE`] lies.
fn file(folder: &Path, kind: &str, key: Digest) -> PathBuf {
    let name = key.to_string();
    folder.join(CORE.to_string()).join(kind).join(&name[..2]).join(name)
}

/// Every file below a folder, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

/// What a tier that evicts by use holds, written down as simply as possible.
#[derive(Clone, Default)]
struct Model {
    /// The least recently used first.
    held: Vec<Arc<Checkpoint>>,
    dropped: Vec<Digest>,
}

impl Model {
    fn holds(&self, key: Digest) -> bool {
        self.held.iter().any(|checkpoint| checkpoint.key == key)
    }

    fn touch(&mut self, key: Digest) -> bool {
        let place = self.held.iter().position(|checkpoint| checkpoint.key == key);
        let touched = place.map(|place| self.held.remove(place));
        self.held.extend(touched);
        place.is_some()
    }

    /// Returns whether the checkpoint fits a tier where things take `cost`.
    fn store(
        &mut self,
        checkpoint: &Arc<Checkpoint>,
        budget_bytes: u64,
        cost: fn(&[Arc<Checkpoint>]) -> u64,
    ) -> bool {
        if self.touch(checkpoint.key) {
            return true;
        }
        if cost(std::slice::from_ref(checkpoint)) > budget_bytes {
            return false;
        }
        self.held.push(Arc::clone(checkpoint));
        while cost(&self.held) > budget_bytes {
            self.dropped.push(self.held.remove(0).key);
        }
        true
    }

    fn lose(&mut self, is_lost: impl Fn(&Checkpoint) -> bool) {
        self.held.retain(|checkpoint| !is_lost(checkpoint));
    }
}

fn distinct_pages(checkpoints: &[Arc<Checkpoint>]) -> u64 {
    let mut pages: Vec<Digest> = checkpoints.iter().flat_map(|checkpoint| checkpoint.pages.clone()).collect();
    pages.sort();
    pages.dedup();
    pages.len() as u64
}
