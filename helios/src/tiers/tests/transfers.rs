//! The thread and its transfers, on a device of plain bytes.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard};

use super::*;
use crate::device::{Copier, DeviceError, Placement};
use crate::ids::{PageId, RowId, TransferId};
use crate::tiers::{Restore, STORES_MAX, Store, TierEvent, TierOptions, TierThread};

const PAGES: usize = 32;
const ROWS: usize = 4;
const EVENTS_MAX: usize = 256;
const TIMEOUT: Duration = Duration::from_secs(30);

/// Pages and rows, shared by the test and the copier. Whoever holds the lock holds the copies up.
#[derive(Clone)]
struct Device(Arc<Mutex<Memory>>);

struct Memory {
    pages: Vec<Vec<u8>>,
    rows: Vec<Vec<u8>>,
    copies: usize,
    is_broken: bool,
}

impl Device {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Memory {
            pages: vec![vec![0; GEOMETRY.page_bytes]; PAGES],
            rows: vec![vec![0; GEOMETRY.row_bytes]; ROWS],
            copies: 0,
            is_broken: false,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap()
    }

    fn copy(&self) -> Result<MutexGuard<'_, Memory>, DeviceError> {
        let mut memory = self.lock();
        memory.copies += 1;
        if memory.is_broken { Err(DeviceError::Stopped) } else { Ok(memory) }
    }
}

impl Copier for Device {
    fn page_bytes(&self) -> usize {
        GEOMETRY.page_bytes
    }

    fn row_bytes(&self) -> usize {
        GEOMETRY.row_bytes
    }

    fn placement(&self) -> Placement {
        Placement::Device
    }

    fn read_page(&mut self, page: PageId, into: &mut [u8]) -> Result<(), DeviceError> {
        into.copy_from_slice(&self.copy()?.pages[page.0 as usize]);
        Ok(())
    }

    fn write_page(&mut self, page: PageId, from: &[u8]) -> Result<(), DeviceError> {
        self.copy()?.pages[page.0 as usize].copy_from_slice(from);
        Ok(())
    }

    fn read_row(&mut self, row: RowId, into: &mut [u8]) -> Result<(), DeviceError> {
        into.copy_from_slice(&self.copy()?.rows[row.0 as usize]);
        Ok(())
    }

    fn write_row(&mut self, row: RowId, from: &[u8]) -> Result<(), DeviceError> {
        self.copy()?.rows[row.0 as usize].copy_from_slice(from);
        Ok(())
    }
}

/// A tier thread, its device and its events.
struct Subject {
    device: Device,
    thread: TierThread,
    events: Receiver<TierEvent>,
    /// What the thread listed as it started.
    listed: Vec<Checkpoint>,
    transfers: u64,
}

impl Subject {
    fn start(memory_bytes: Option<u64>, folder: Option<&Path>) -> Self {
        Self::start_with_room(EVENTS_MAX, memory_bytes, folder)
    }

    /// The thread waits when `events_max` events have not been read.
    fn start_with_room(events_max: usize, memory_bytes: Option<u64>, folder: Option<&Path>) -> Self {
        let device = Device::new();
        let (sender, events) = sync_channel(events_max);
        let thread = start(device.clone(), memory_bytes, folder, sender).unwrap();
        let listed = std::iter::from_fn(|| match events.recv_timeout(TIMEOUT).unwrap() {
            TierEvent::Listed(checkpoint) => Some(checkpoint),
            TierEvent::AllListed => None,
            other => panic!("{other:?}"),
        });
        Self { listed: listed.collect(), device, thread, events, transfers: 0 }
    }

    fn next(&self) -> TierEvent {
        self.events.recv_timeout(TIMEOUT).unwrap()
    }

    fn transfer(&mut self) -> TransferId {
        self.transfers += 1;
        TransferId(self.transfers)
    }

    /// Puts a checkpoint on the device, from page `first` on.
    fn place(&self, checkpoint: &Checkpoint, first: u32) -> Vec<(PageId, Digest)> {
        let mut memory = self.device.lock();
        memory.rows[1] = content(checkpoint.key, GEOMETRY.row_bytes);
        let place = |(&name, page): (&Digest, u32)| {
            memory.pages[page as usize] = content(name, GEOMETRY.page_bytes);
            (PageId(page), name)
        };
        checkpoint.pages.iter().zip(first..).map(place).collect()
    }

    fn send_store(&mut self, checkpoint: &Checkpoint) -> TransferId {
        let transfer = self.transfer();
        let &Checkpoint { key, block, consumed, .. } = checkpoint;
        let pages = self.place(checkpoint, 0);
        self.thread.store(Store { transfer, key, block, consumed, pages, row: RowId(1) }).unwrap();
        transfer
    }

    /// Stores and returns what comes up to the answer, and the answer.
    fn store(&mut self, checkpoint: &Checkpoint) -> (Vec<TierEvent>, Result<(), TierError>) {
        let transfer = self.send_store(checkpoint);
        self.answer(transfer)
    }

    fn answer(&self, expected: TransferId) -> (Vec<TierEvent>, Result<(), TierError>) {
        let mut before = Vec::new();
        loop {
            match self.next() {
                TierEvent::Stored { transfer, outcome } | TierEvent::Restored { transfer, outcome } => {
                    assert_eq!(transfer, expected);
                    return (before, outcome);
                }
                other => before.push(other),
            }
        }
    }

    /// Restores all but the first `present` pages and checks what came.
    fn restore(
        &mut self,
        checkpoint: &Checkpoint,
        present: usize,
    ) -> (Vec<TierEvent>, Result<(), TierError>) {
        let transfer = self.transfer();
        let pages = checkpoint.pages[present..].iter().zip(10..).map(|(&name, page)| (PageId(page), name));
        let pages: Vec<(PageId, Digest)> = pages.collect();
        let (key, row) = (checkpoint.key, RowId(2));
        self.thread.restore(Restore { transfer, key, pages: pages.clone(), row }).unwrap();
        let answer = self.answer(transfer);
        if answer.1.is_ok() {
            let memory = self.device.lock();
            for (page, name) in pages {
                assert_eq!(memory.pages[page.0 as usize], content(name, GEOMETRY.page_bytes));
            }
            assert_eq!(memory.rows[2], content(key, GEOMETRY.row_bytes));
        }
        answer
    }

    /// Ends the thread; the events that had not been read, but for the last.
    fn close(self) -> Vec<TierEvent> {
        self.thread.close(TIMEOUT);
        let mut events: Vec<TierEvent> = self.events.iter().collect();
        assert_eq!(events.pop(), Some(TierEvent::Stopped));
        events
    }
}

fn start(
    device: Device,
    memory_bytes: Option<u64>,
    folder: Option<&Path>,
    sender: SyncSender<TierEvent>,
) -> Option<TierThread> {
    let disk = folder.map(|folder| DiskOptions { folder: folder.to_owned(), budget_bytes: 1 << 20 });
    let notify = move |event| {
        // The receiver is gone when the test is over.
        drop(sender.send(event));
    };
    TierThread::start(TierOptions { memory_bytes, disk }, CORE, Box::new(device), notify).unwrap()
}

fn missing(key: Digest) -> Result<(), TierError> {
    Err(TierError::Missing { key })
}

#[test]
fn memory_gives_back_what_it_was_given() {
    let mut subject = Subject::start(Some(1 << 20), None);
    assert_eq!(subject.restore(&checkpoint(9), 0), (vec![], missing(checkpoint(9).key)));
    assert_eq!(subject.store(&checkpoint(9)), (vec![], Ok(())));
    assert_eq!(subject.restore(&checkpoint(9), 0), (vec![], Ok(())));
    assert_eq!(subject.restore(&checkpoint(9), 2), (vec![], Ok(())));
    let stats = subject.thread.stats();
    assert_eq!(subject.close(), []);
    let stats = stats.read();
    assert_eq!((stats.memory.hits, stats.memory.misses, stats.memory.stores), (2, 1, 1));
    assert!(!stats.disk.is_on);
}

#[test]
fn what_goes_from_memory_is_told_and_what_the_disk_holds_is_not() {
    // Room for one checkpoint of three pages.
    let memory_bytes = Some(3 * 300 + 100 + 512 + 3 * 256);
    let mut subject = Subject::start(memory_bytes, None);
    assert_eq!(subject.store(&checkpoint(9)), (vec![], Ok(())));
    // The answer comes first: the store was through before anybody asked what had gone for it.
    assert_eq!(subject.store(&checkpoint(10)), (vec![], Ok(())));
    assert_eq!(subject.next(), TierEvent::Dropped { key: checkpoint(9).key });
    let (events, too_large) = subject.store(&checkpoint(12));
    assert!(events.is_empty() && matches!(too_large, Err(TierError::TooLarge { .. })), "{too_large:?}");
    subject.close();

    let folder = tempfile::tempdir().unwrap();
    let mut subject = Subject::start(memory_bytes, Some(folder.path()));
    for number in [9, 10, 12] {
        assert_eq!(subject.store(&checkpoint(number)), (vec![], Ok(())));
    }
    for number in [9, 10, 12] {
        assert_eq!(subject.restore(&checkpoint(number), 0), (vec![], Ok(())));
    }
    assert_eq!(subject.close(), []);
}

#[test]
fn a_restart_lists_what_is_on_disk_and_brings_it_into_memory() {
    let folder = tempfile::tempdir().unwrap();
    let mut subject = Subject::start(Some(1 << 20), Some(folder.path()));
    assert_eq!(subject.store(&checkpoint(9)), (vec![], Ok(())));
    subject.close();

    let mut subject = Subject::start(Some(1 << 20), Some(folder.path()));
    assert_eq!(subject.listed, [Checkpoint::clone(&checkpoint(9))]);
    // Two pages are on the device already: reading them for the memory tier would cost more than it is worth.
    assert_eq!(subject.restore(&checkpoint(9), 2), (vec![], Ok(())));
    assert_eq!(subject.restore(&checkpoint(9), 0), (vec![], Ok(())));
    std::fs::remove_dir_all(folder.path().join(CORE.to_string())).unwrap();
    assert_eq!(subject.restore(&checkpoint(9), 0), (vec![], Ok(())));
    let stats = subject.thread.stats();
    subject.close();
    let stats = stats.read();
    assert_eq!((stats.memory.hits, stats.memory.misses), (1, 2));
    assert_eq!((stats.disk.hits, stats.disk.misses), (2, 0));
}

#[test]
fn a_damaged_file_is_told_before_the_answer_and_never_reaches_the_device() {
    let folder = tempfile::tempdir().unwrap();
    let mut subject = Subject::start(None, Some(folder.path()));
    for number in [9, 12, 10] {
        assert_eq!(subject.store(&checkpoint(number)), (vec![], Ok(())));
    }
    let path = file(folder.path(), "pages", checkpoint(9).pages[2]);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[200] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    subject.device.lock().pages[12] = vec![7; GEOMETRY.page_bytes];
    let (events, outcome) = subject.restore(&checkpoint(9), 0);
    assert!(matches!(outcome, Err(TierError::Damaged { .. })), "{outcome:?}");
    // The restore was the last use of the first, so the other is the older one.
    assert_eq!(events, [12, 9].map(|number| TierEvent::Dropped { key: checkpoint(number).key }));
    assert_eq!(subject.device.lock().pages[12], vec![7; GEOMETRY.page_bytes]);
    assert_eq!(subject.restore(&checkpoint(10), 0), (vec![], Ok(())));
    assert_eq!(subject.store(&checkpoint(9)), (vec![], Ok(())));
    assert_eq!(subject.restore(&checkpoint(9), 0), (vec![], Ok(())));
}

#[test]
fn a_folder_in_use_leaves_memory_alone_to_work() {
    let folder = tempfile::tempdir().unwrap();
    let owner = open(folder.path(), 1 << 20);
    let mut subject = Subject::start(Some(1 << 20), Some(folder.path()));
    assert_eq!(subject.store(&checkpoint(9)), (vec![], Ok(())));
    assert_eq!(subject.restore(&checkpoint(9), 0), (vec![], Ok(())));
    assert_eq!(owner.checkpoints().count(), 0);
    let mut subject = Subject::start(None, Some(folder.path()));
    assert_eq!(subject.store(&checkpoint(9)), (vec![], Err(TierError::Off)));
}

#[test]
fn a_device_that_fails_is_answered_and_no_disks_fault() {
    let folder = tempfile::tempdir().unwrap();
    let mut subject = Subject::start(None, Some(folder.path()));
    assert_eq!(subject.store(&checkpoint(9)), (vec![], Ok(())));
    subject.device.lock().is_broken = true;
    for _ in 0..5 {
        let broken = Err(TierError::Device(DeviceError::Stopped));
        assert_eq!(subject.store(&checkpoint(10)), (vec![], broken.clone()));
        assert_eq!(subject.restore(&checkpoint(9), 0), (vec![], broken));
    }
    subject.device.lock().is_broken = false;
    assert_eq!(subject.store(&checkpoint(10)), (vec![], Ok(())));
    assert_eq!(subject.restore(&checkpoint(9), 0), (vec![], Ok(())));
}

#[test]
fn nothing_touches_the_device_for_an_abandoned_transfer_and_it_is_answered_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let mut subject = Subject::start_with_room(0, Some(1 << 20), Some(folder.path()));
    // The thread waits for its first answer to be read, and the others wait behind it.
    let first = subject.send_store(&checkpoint(0));
    let second = subject.send_store(&checkpoint(12));
    subject.thread.abandon(second);
    let third = subject.send_store(&checkpoint(15));
    assert_eq!(subject.answer(first), (vec![], Ok(())));
    assert_eq!(subject.answer(second), (vec![], Err(TierError::Abandoned)));
    assert_eq!(subject.answer(third), (vec![], Ok(())));
    assert_eq!(subject.device.lock().copies, 1 + 6, "a row, nothing, five pages and a row");
    let (key, transfer) = (checkpoint(15).key, subject.transfer());
    let last = subject.send_store(&checkpoint(15));
    subject.thread.restore(Restore { transfer, key, pages: vec![], row: RowId(3) }).unwrap();
    subject.thread.abandon(transfer);
    let mut answers = [subject.next(), subject.next()];
    answers.sort_by_key(|answer| matches!(answer, TierEvent::Restored { .. }));
    assert_eq!(answers[0], TierEvent::Stored { transfer: last, outcome: Ok(()) });
    let TierEvent::Restored { outcome, .. } = &answers[1] else { panic!("{answers:?}") };
    let is_untouched = subject.device.lock().rows[3] == vec![0; GEOMETRY.row_bytes];
    assert_eq!(is_untouched, *outcome == Err(TierError::Abandoned));
    drop(subject.events);
}

#[test]
fn a_full_queue_refuses_and_every_command_taken_is_answered() {
    let mut subject = Subject::start(Some(1 << 20), None);
    let device = subject.device.clone();
    // The thread is held up within the first store, so that the others wait.
    let pages = subject.place(&checkpoint(0), 0);
    let guard = device.lock();
    let store = |transfer: u64| {
        let Checkpoint { key, block, consumed, .. } = *checkpoint(0);
        Store { transfer: TransferId(transfer), key, block, consumed, pages: pages.clone(), row: RowId(1) }
    };
    let mut taken = 0;
    let refused = loop {
        match subject.thread.store(store(taken + 1)) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused, TierError::QueueFull { queued_max: STORES_MAX });
    assert!(taken as usize >= STORES_MAX);
    drop(guard);
    for transfer in 1..=taken {
        assert_eq!(subject.answer(TransferId(transfer)), (vec![], Ok(())));
    }
    subject.transfers = taken;
    assert_eq!(subject.store(&checkpoint(0)), (vec![], Ok(())));
}

#[test]
fn closing_finishes_what_is_queued_and_dropping_leaves_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut subject = Subject::start(None, Some(folder.path()));
    let transfers = [9, 9, 9].map(|number| subject.send_store(&checkpoint(number)));
    let answers = transfers.map(|transfer| TierEvent::Stored { transfer, outcome: Ok(()) });
    assert_eq!(subject.close(), answers);

    let subject = Subject::start(None, Some(folder.path()));
    assert_eq!(subject.listed.len(), 1);
    let device = subject.device.clone();
    let (pages, memory) = (subject.place(&checkpoint(12), 0), device.lock());
    let Checkpoint { key, block, consumed, .. } = *checkpoint(12);
    for number in 1..=3 {
        let (transfer, pages) = (TransferId(number), pages.clone());
        subject.thread.store(Store { transfer, key, block, consumed, pages, row: RowId(1) }).unwrap();
    }
    // The thread is held up, so this ends without it; and the thread ends once it goes on.
    drop(subject.thread);
    drop(memory);
    assert_eq!(subject.events.iter().collect::<Vec<_>>(), [TierEvent::Stopped]);
    let listed: Vec<Digest> = open(folder.path(), 1 << 20).checkpoints().map(|found| found.key).collect();
    assert_eq!(listed, [checkpoint(9).key]);
}

#[test]
fn no_tier_no_thread() {
    let (sender, _events) = sync_channel(1);
    assert!(start(Device::new(), None, None, sender).is_none());
}
