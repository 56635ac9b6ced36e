//! What the tier thread does with a command, one small piece at a time.
//!
//! A store copies into the memory tier at once and to disk page by page, so that restores come between. Each page goes to disk
//! from the memory tier if it is there and from the device otherwise: the store's pins hold until its answer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::access::Access;
use super::{
    Checkpoint, Counters, DiskTier, Geometry, MemoryTier, Part, Restore, Store, TierError, TierEvent,
    TierStats,
};
use crate::ids::{Digest, PageId, RowId, TransferId};

/// Both tiers, the device, and the way back to the model thread.
pub struct Transfers<N: Fn(TierEvent)> {
    device: Access,
    pub memory: Option<MemoryTier>,
    pub disk: Option<DiskTier>,
    storing: Option<Storing>,
    page: Box<[u8]>,
    row: Box<[u8]>,
    /// Last, so that what it says last is true.
    notify: Outlet<N>,
}

/// A store on its way to disk.
struct Storing {
    transfer: TransferId,
    checkpoint: Arc<Checkpoint>,
    sources: HashMap<Digest, PageId>,
    row: RowId,
    /// Pages still to be written, the next one last.
    missing: Vec<Digest>,
}

/// Hands events on, and says so when it ends, whatever ended it.
struct Outlet<N: Fn(TierEvent)>(N);

impl<N: Fn(TierEvent)> Drop for Outlet<N> {
    fn drop(&mut self) {
        (self.0)(TierEvent::Stopped);
    }
}

impl<N: Fn(TierEvent)> Transfers<N> {
    pub fn new(device: Access, notify: N) -> Self {
        let Geometry { page_bytes, row_bytes } = device.geometry();
        Self {
            device,
            memory: None,
            disk: None,
            storing: None,
            page: vec![0; page_bytes].into_boxed_slice(),
            row: vec![0; row_bytes].into_boxed_slice(),
            notify: Outlet(notify),
        }
    }

    /// Tells of everything that the disk tier found when it was opened.
    pub fn list(&self) {
        for checkpoint in self.disk.iter().flat_map(DiskTier::checkpoints) {
            self.say(TierEvent::Listed(Checkpoint::clone(checkpoint)));
        }
        self.say(TierEvent::AllListed);
    }

    pub fn is_storing(&self) -> bool {
        self.storing.is_some()
    }

    /// Copies a checkpoint into the memory tier, and begins to copy it to disk.
    pub fn store(&mut self, store: Store, now: Duration) {
        assert!(self.storing.is_none(), "one store at a time");
        let Store { transfer, key, block, consumed, pages, row } = store;
        let names = pages.iter().map(|&(_, digest)| digest).collect();
        let checkpoint = Arc::new(Checkpoint { key, block, consumed, pages: names });
        let sources = pages.into_iter().map(|(page, digest)| (digest, page)).collect();
        let in_memory = self.store_in_memory(transfer, &checkpoint, &sources, row);
        let begun = match &mut self.disk {
            Some(disk) => disk.begin(&checkpoint, now),
            None => Ok(false),
        };
        if begun == Ok(true) {
            self.storing = Some(Storing { transfer, checkpoint, sources, row, missing: Vec::new() });
        } else {
            self.answer_store(transfer, key, in_memory.and(begun.map(|_| ())));
        }
        self.report_drops();
    }

    /// Writes the next page of the store that was begun, or its row once no page is missing.
    pub fn go_on(&mut self, now: Duration) {
        let mut storing = self.storing.take().expect("a store was begun");
        match self.write_next(&mut storing, now) {
            Ok(false) => self.storing = Some(storing),
            Ok(true) => self.answer_store(storing.transfer, storing.checkpoint.key, Ok(())),
            Err(error) => {
                let key = storing.checkpoint.key;
                if let Some(disk) = &mut self.disk {
                    disk.abandon(key);
                }
                self.answer_store(storing.transfer, key, Err(error));
            }
        }
        self.report_drops();
    }

    /// Brings a checkpoint back from the first tier that holds it.
    pub fn restore(&mut self, restore: &Restore) {
        let outcome = self.find(restore).and_then(|()| self.deliver(restore));
        self.report_drops();
        self.device.permits().revoke(restore.transfer);
        self.say(TierEvent::Restored { transfer: restore.transfer, outcome });
    }

    pub fn stats(&self) -> TierStats {
        let memory = self.memory.as_ref().map_or_else(Counters::default, MemoryTier::counters);
        let disk = self.disk.as_ref().map_or_else(Counters::default, DiskTier::counters);
        TierStats { memory, disk }
    }

    fn store_in_memory(
        &mut self,
        transfer: TransferId,
        checkpoint: &Arc<Checkpoint>,
        sources: &HashMap<Digest, PageId>,
        row: RowId,
    ) -> Result<(), TierError> {
        let Some(memory) = &mut self.memory else { return Ok(()) };
        memory.store(checkpoint, &mut |part, into| match part {
            Part::Page(digest) => self.device.read_page(transfer, sources[&digest], into),
            Part::Row => self.device.read_row(transfer, row, into),
        })
    }

    /// Returns whether the checkpoint is complete on disk.
    fn write_next(&mut self, storing: &mut Storing, now: Duration) -> Result<bool, TierError> {
        let disk = self.disk.as_mut().expect("a store is begun on a disk tier");
        let key = storing.checkpoint.key;
        if storing.missing.is_empty() {
            // A page that was here may have been lost since, to a restore that found it damaged.
            storing.missing = disk.missing(key);
            storing.missing.reverse();
        }
        let memory = self.memory.as_ref();
        if let Some(page) = storing.missing.pop() {
            let bytes = match memory.and_then(|memory| memory.page(page)) {
                Some(bytes) => bytes,
                None => {
                    self.device.read_page(storing.transfer, storing.sources[&page], &mut self.page)?;
                    &self.page
                }
            };
            return disk.write_page(page, bytes, now).map(|()| false);
        }
        let bytes = match memory.and_then(|memory| memory.row(key)) {
            Some(bytes) => bytes,
            None => {
                self.device.read_row(storing.transfer, storing.row, &mut self.row)?;
                &self.row
            }
        };
        disk.finish(&storing.checkpoint, bytes, now).map(|()| true)
    }

    fn answer_store(&mut self, transfer: TransferId, key: Digest, written: Result<(), TierError>) {
        let outcome = if self.holds(key) { Ok(()) } else { written.and(Err(TierError::Off)) };
        self.device.permits().revoke(transfer);
        self.say(TierEvent::Stored { transfer, outcome });
    }

    /// Finds out whether a tier holds the checkpoint, and brings it into the memory tier where that costs no reading of pages
    /// that the device has.
    fn find(&mut self, restore: &Restore) -> Result<(), TierError> {
        let key = restore.key;
        let in_memory = self.memory.as_mut().is_some_and(|memory| {
            let is_here = memory.touch(key);
            count(&mut memory.counters, is_here);
            is_here
        });
        let on_disk = self.disk.as_mut().is_some_and(|disk| disk.touch(key));
        if in_memory {
            return Ok(());
        }
        if let Some(disk) = &mut self.disk {
            count(&mut disk.counters, on_disk);
        }
        if !on_disk {
            return Err(TierError::Missing { key });
        }
        self.promote(restore)
    }

    fn promote(&mut self, restore: &Restore) -> Result<(), TierError> {
        let (Some(memory), Some(disk)) = (&mut self.memory, &mut self.disk) else { return Ok(()) };
        let Some(checkpoint) = disk.checkpoint(restore.key).map(Arc::clone) else { return Ok(()) };
        let is_wanted = |page: &Digest| restore.pages.iter().any(|(_, wanted)| wanted == page);
        if !checkpoint.pages.iter().all(|page| memory.page(*page).is_some() || is_wanted(page)) {
            return Ok(());
        }
        let promoted = memory.store(&checkpoint, &mut |part, into| match part {
            Part::Page(page) => disk.read_page(page, into),
            Part::Row => disk.read_row(restore.key, into),
        });
        match promoted {
            Err(TierError::TooLarge { .. }) => Ok(()),
            promoted => promoted,
        }
    }

    fn deliver(&mut self, restore: &Restore) -> Result<(), TierError> {
        for &(page, digest) in &restore.pages {
            if let Some(bytes) = self.memory.as_ref().and_then(|memory| memory.page(digest)) {
                self.device.write_page(restore.transfer, page, bytes)?;
            } else {
                let disk = self.disk.as_mut().ok_or(TierError::Missing { key: digest })?;
                disk.read_page(digest, &mut self.page)?;
                self.device.write_page(restore.transfer, page, &self.page)?;
            }
        }
        if let Some(bytes) = self.memory.as_ref().and_then(|memory| memory.row(restore.key)) {
            self.device.write_row(restore.transfer, restore.row, bytes)?;
        } else {
            let disk = self.disk.as_mut().ok_or(TierError::Missing { key: restore.key })?;
            disk.read_row(restore.key, &mut self.row)?;
            self.device.write_row(restore.transfer, restore.row, &self.row)?;
        }
        Ok(())
    }

    /// Tells of checkpoints that no tier holds any more. One on its way to disk is not gone yet: its answer says what became of it.
    fn report_drops(&mut self) {
        let mut dropped = self.memory.as_mut().map(MemoryTier::take_dropped).unwrap_or_default();
        dropped.extend(self.disk.as_mut().map(DiskTier::take_dropped).unwrap_or_default());
        let storing = self.storing.as_ref().map(|storing| storing.checkpoint.key);
        for key in dropped {
            if !self.holds(key) && storing != Some(key) {
                self.say(TierEvent::Dropped { key });
            }
        }
    }

    fn holds(&self, key: Digest) -> bool {
        self.memory.as_ref().is_some_and(|memory| memory.contains(key))
            || self.disk.as_ref().is_some_and(|disk| disk.checkpoint(key).is_some())
    }

    fn say(&self, event: TierEvent) {
        (self.notify.0)(event);
    }
}

fn count(counters: &mut Counters, is_hit: bool) {
    if is_hit {
        counters.hits += 1;
    } else {
        counters.misses += 1;
    }
}
