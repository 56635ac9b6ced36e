//! The disk tier: copies of checkpoints in files that outlive the process.
//!
//! A checkpoint is a file for each page, which other checkpoints may share, one for its row, and last the one that lists them. A
//! process that is killed leaves at worst files that nothing lists, and opening the folder again removes them. What is
//! read is checked before anything sees it; a file that does not hold what was written takes the checkpoints that
//! name it with it.
//!
//! Every failure is a [`TierError`]. Writing that keeps failing stops for a while ([`health`]); reading goes on.

mod file;
mod health;
mod layout;
mod scan;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{CWD, FlockOperation, Timespec, Timestamps, UTIME_NOW};

use self::file::Label;
use self::health::Health;
use self::layout::{CoreFolder, Kind, LOCK_NAME};
use super::catalog::{Catalog, Costs, Released};
use super::{Checkpoint, Counters, Geometry, TierError};
use crate::ids::Digest;

/// Files take whole blocks of this size.
const BLOCK_BYTES: u64 = 4096;

/// Where the disk tier keeps its files, and how much of the disk it may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    pub folder: PathBuf,
    pub budget_bytes: u64,
}

/// Checkpoints of one core in the files of a folder that no other process uses.
pub struct DiskTier {
    core: Digest,
    folder: CoreFolder,
    geometry: Geometry,
    costs: Costs,
    catalog: Catalog<()>,
    health: Health,
    /// Whether a file could not be removed, which is said once.
    is_stuck: bool,
    dropped: Vec<Digest>,
    pub(super) counters: Counters,
    _lock: File,
}

impl DiskTier {
    /// Opens a folder, or makes it. Finds what a former process stored, and removes what it left half done and what
    /// belongs to another core.
    pub fn open(options: &DiskOptions, core: Digest, geometry: Geometry) -> Result<Self, TierError> {
        let lock = lock(&options.folder)?;
        let folder = CoreFolder::new(&options.folder, core);
        folder.create().map_err(|error| TierError::io("making a folder in", &options.folder, &error))?;
        let blocks = |payload_bytes: usize| {
            (payload_bytes as u64 + file::OVERHEAD_BYTES).next_multiple_of(BLOCK_BYTES)
        };
        let costs = Costs {
            page_bytes: blocks(geometry.page_bytes),
            // The list of pages takes its names and, rounded up, at most one block more.
            checkpoint_bytes: blocks(geometry.row_bytes) + BLOCK_BYTES + scan::LIST_BYTES_MIN,
            name_bytes: size_of::<Digest>() as u64,
        };
        let mut tier = Self {
            core,
            folder,
            geometry,
            costs,
            catalog: Catalog::new(options.budget_bytes, costs),
            health: Health::default(),
            is_stuck: false,
            dropped: Vec::new(),
            counters: Counters::default(),
            _lock: lock,
        };
        scan::remove_other_cores(&options.folder, core);
        tier.scan().map_err(|error| TierError::io("listing", &options.folder, &error))?;
        Ok(tier)
    }

    /// All checkpoints, the least recently used first.
    pub fn checkpoints(&self) -> impl Iterator<Item = &Arc<Checkpoint>> {
        self.catalog.checkpoints()
    }

    /// A checkpoint that is here.
    pub fn checkpoint(&self, key: Digest) -> Option<&Arc<Checkpoint>> {
        self.catalog.checkpoint(key)
    }

    /// Makes room for a checkpoint and counts it as here; [`DiskTier::missing`], [`DiskTier::write_page`] and
    /// [`DiskTier::finish`] write it, [`DiskTier::abandon`] gives it up. Returns false if it is here already.
    pub fn begin(&mut self, checkpoint: &Arc<Checkpoint>, now: Duration) -> Result<bool, TierError> {
        if self.touch(checkpoint.key) {
            return Ok(false);
        }
        let released = self.check_health(now).and_then(|()| self.catalog.claim(checkpoint));
        let released = released.inspect_err(|_| self.counters.store_failures += 1)?;
        self.remove(released);
        Ok(true)
    }

    /// Pages that a checkpoint that was begun still lacks, in the chain's order.
    pub fn missing(&self, key: Digest) -> Vec<Digest> {
        self.catalog.missing(key)
    }

    /// Writes a page that a checkpoint that was begun lacks.
    pub fn write_page(&mut self, page: Digest, bytes: &[u8], now: Duration) -> Result<(), TierError> {
        self.write(Kind::Page, page, bytes, now)?;
        self.catalog.fill_page(page, ());
        Ok(())
    }

    /// Writes the row of a checkpoint that lacks no page, and with it completes the checkpoint.
    pub fn finish(&mut self, checkpoint: &Checkpoint, row: &[u8], now: Duration) -> Result<(), TierError> {
        let key = checkpoint.key;
        self.write(Kind::Row, key, row, now)?;
        let listed = self.write(Kind::Checkpoint, key, &scan::encode(checkpoint), now);
        listed.inspect_err(|_| self.remove_file(Kind::Row, key))?;
        self.catalog.complete(key, ());
        self.counters.stores += 1;
        if self.health.succeed() {
            tracing::info!("checkpoints are written to disk again");
        }
        Ok(())
    }

    /// Gives up a checkpoint that was begun and not finished.
    pub fn abandon(&mut self, key: Digest) {
        let released = self.catalog.release(key);
        self.counters.store_failures += 1;
        self.remove(released);
    }

    /// Marks a checkpoint as used now. Returns whether it is here.
    pub fn touch(&mut self, key: Digest) -> bool {
        let is_here = self.catalog.touch(key);
        if is_here {
            let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
            let times = Timestamps { last_access: now, last_modification: now };
            let path = self.folder.file(Kind::Checkpoint, key);
            // The order of use is only for eviction after a restart.
            if let Err(errno) = rustix::fs::utimensat(CWD, &path, &times, rustix::fs::AtFlags::empty()) {
                tracing::debug!(%errno, path = %path.display(), "a checkpoint's time could not be set");
            }
        }
        is_here
    }

    /// Reads a page, checked.
    pub fn read_page(&mut self, page: Digest, into: &mut [u8]) -> Result<(), TierError> {
        if self.catalog.page(page).is_none() {
            return Err(TierError::Missing { key: page });
        }
        self.read(Kind::Page, page, into).inspect_err(|error| {
            if error.is_lasting() {
                self.lose_page(page);
            }
        })
    }

    /// Reads a checkpoint's row, checked.
    pub fn read_row(&mut self, key: Digest, into: &mut [u8]) -> Result<(), TierError> {
        if self.catalog.row(key).is_none() {
            return Err(TierError::Missing { key });
        }
        self.read(Kind::Row, key, into).inspect_err(|error| {
            if error.is_lasting() {
                self.lose(key);
            }
        })
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
            is_degraded: self.health.is_degraded(),
            bytes: self.catalog.bytes(),
            budget_bytes: self.catalog.budget_bytes(),
            checkpoints,
            pages,
            ..self.counters
        }
    }

    fn label(&self, kind: Kind, key: Digest) -> Label {
        Label { core: self.core, kind, key }
    }

    fn read(&self, kind: Kind, key: Digest, into: &mut [u8]) -> Result<(), TierError> {
        file::read(&self.folder.file(kind, key), &self.label(kind, key), into)
    }

    fn write(&mut self, kind: Kind, key: Digest, payload: &[u8], now: Duration) -> Result<(), TierError> {
        let incoming = self.folder.incoming();
        let written = file::write(&incoming, &self.folder.file(kind, key), &self.label(kind, key), payload);
        written.map_err(|error| {
            // What cannot be removed here is overwritten by the next file.
            drop(layout::remove_file(&incoming));
            self.fail(error, now)
        })
    }

    /// Whether to write now. Where the last attempt failed, a small one comes first, so that nothing is evicted for a checkpoint that
    /// cannot be written.
    fn check_health(&mut self, now: Duration) -> Result<(), TierError> {
        self.health.check(now).map_err(|left| {
            let retry_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            TierError::Paused { retry_ms }
        })?;
        if self.health.is_in_doubt() {
            let path = self.folder.incoming();
            let tried = std::fs::write(&path, [0]);
            drop(layout::remove_file(&path));
            tried.map_err(|error| self.fail(TierError::io("writing", &path, &error), now))?;
        }
        Ok(())
    }

    fn fail(&mut self, error: TierError, now: Duration) -> TierError {
        if self.health.fail(now) {
            tracing::warn!(%error, "checkpoints are not written to disk for now");
        }
        error
    }

    fn lose_page(&mut self, page: Digest) {
        let (bytes, keys) = self.catalog.lose_page(page);
        let pages = bytes.map(|()| (page, ()));
        self.remove(Released { checkpoints: Vec::new(), pages: pages.into_iter().collect() });
        for key in keys {
            self.lose(key);
        }
    }

    fn lose(&mut self, key: Digest) {
        let released = self.catalog.release(key);
        self.remove(released);
    }

    /// Removes files that the catalog let go of, lists first. A file that cannot be removed keeps its part of the budget.
    fn remove(&mut self, released: Released<()>) {
        for (key, row) in released.checkpoints {
            if row.is_some() {
                self.dropped.push(key);
                self.counters.drops += 1;
                self.remove_file(Kind::Checkpoint, key);
                self.remove_file(Kind::Row, key);
            }
        }
        for (page, ()) in released.pages {
            self.remove_file(Kind::Page, page);
        }
    }

    fn remove_file(&mut self, kind: Kind, key: Digest) {
        let path = self.folder.file(kind, key);
        if let Err(error) = layout::remove_file(&path) {
            if !std::mem::replace(&mut self.is_stuck, true) {
                tracing::warn!(%error, path = %path.display(), "files of the prefix cache cannot be removed");
            }
            self.catalog.withhold(match kind {
                Kind::Page => self.costs.page_bytes,
                Kind::Row | Kind::Checkpoint => self.costs.checkpoint_bytes,
            });
        }
    }
}

/// Takes a folder for this process; the lock goes with the file.
fn lock(folder: &Path) -> Result<File, TierError> {
    layout::create_folder(folder).map_err(|error| TierError::io("making", folder, &error))?;
    let path = folder.join(LOCK_NAME);
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    // What is on a read-only disk can be read all the same.
    let file =
        file.or_else(|error| File::open(&path).map_err(|_| TierError::io("opening", &path, &error)))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(TierError::InUse { folder: folder.to_owned() }),
        Err(errno) => Err(TierError::io("locking", &path, &errno.into())),
    }
}
