//! The tier thread on a loaded core: its copies come from and go to the memory that programs use.

use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use helios::core::Core;
use helios::ids::{Digest, PageId, RowId, TransferId};
use helios::memory::{LoadedCore, MemoryOptions, load};
use helios::tiers::{DiskOptions, Restore, Store, TierEvent, TierOptions, TierThread};

use super::support::TinyCore;
use super::{content, digest};

const TIMEOUT: Duration = Duration::from_secs(30);
const CORE: Digest = Digest([9; 32]);

fn load_tiny() -> LoadedCore {
    let folder = tempfile::tempdir().unwrap();
    TinyCore::new().write(folder.path());
    load(Core::open(folder.path()).unwrap(), &MemoryOptions { limit_bytes: Some(64 << 20) }, &mut |_| ())
        .unwrap()
}

fn start(core: &LoadedCore, options: TierOptions) -> (TierThread, Receiver<TierEvent>) {
    let (sender, events) = sync_channel(16);
    let copier = core.executor.copier().unwrap();
    let notify = move |event| sender.send(event).unwrap_or_default();
    (TierThread::start(options, CORE, copier, notify).unwrap().unwrap(), events)
}

/// Writes a part of a region of the device.
fn put(core: &mut LoadedCore, region: u32, index: u64, bytes: &[u8]) {
    let offset_bytes = index * bytes.len() as u64;
    core.executor.write_region(region as usize, offset_bytes, bytes, TIMEOUT).unwrap();
}

fn get(core: &mut LoadedCore, region: u32, index: u64, length: u64) -> Vec<u8> {
    let mut bytes = vec![0; length as usize];
    core.executor.read_region(region as usize, index * length, &mut bytes, TIMEOUT).unwrap();
    bytes
}

fn store(key: Digest, pages: &[Digest]) -> Store {
    let pages = (3..).map(PageId).zip(pages.iter().copied()).collect();
    Store { transfer: TransferId(1), key, block: digest("block"), consumed: 130, pages, row: RowId(4) }
}

/// Restores to other pages and another row than the checkpoint came from, and checks what is there then.
fn check_restore(
    core: &mut LoadedCore,
    tiers: &TierThread,
    events: &Receiver<TierEvent>,
    key: Digest,
    pages: &[Digest],
) {
    let transfer = TransferId(2);
    let destinations = (7..).map(PageId).zip(pages.iter().copied()).collect();
    tiers.restore(Restore { transfer, key, pages: destinations, row: RowId(5) }).unwrap();
    assert_eq!(events.recv_timeout(TIMEOUT).unwrap(), TierEvent::Restored { transfer, outcome: Ok(()) });
    let state = core.contract.state.clone();
    for (index, &page) in (7..).zip(pages) {
        let bytes = get(core, state.pages_region, index, state.page_stride_bytes);
        assert_eq!(bytes, content(page, state.page_stride_bytes as usize));
    }
    let row = get(core, state.rows_region, 5, state.row_stride_bytes);
    assert_eq!(row, content(key, state.row_stride_bytes as usize));
}

#[test]
fn a_checkpoint_leaves_the_device_and_comes_back_to_another_place_and_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Some(DiskOptions { folder: folder.path().to_owned(), budget_bytes: 1 << 20 });
    let (key, pages) = (digest("key"), ["first page", "second page"].map(digest));

    let mut core = load_tiny();
    let state = core.contract.state.clone();
    for (index, &page) in (3..).zip(&pages) {
        put(&mut core, state.pages_region, index, &content(page, state.page_stride_bytes as usize));
    }
    put(&mut core, state.rows_region, 4, &content(key, state.row_stride_bytes as usize));
    let (tiers, events) = start(&core, TierOptions { memory_bytes: Some(1 << 20), disk: disk.clone() });
    assert_eq!(events.recv_timeout(TIMEOUT).unwrap(), TierEvent::AllListed);
    tiers.store(store(key, &pages)).unwrap();
    let stored = TierEvent::Stored { transfer: TransferId(1), outcome: Ok(()) };
    assert_eq!(events.recv_timeout(TIMEOUT).unwrap(), stored);
    check_restore(&mut core, &tiers, &events, key, &pages);
    tiers.close(TIMEOUT);

    let mut core = load_tiny();
    let (tiers, events) = start(&core, TierOptions { memory_bytes: None, disk });
    let listed = events.recv_timeout(TIMEOUT).unwrap();
    assert!(matches!(listed, TierEvent::Listed(found) if found.key == key && found.consumed == 130));
    assert_eq!(events.recv_timeout(TIMEOUT).unwrap(), TierEvent::AllListed);
    check_restore(&mut core, &tiers, &events, key, &pages);
}

#[test]
fn a_copier_keeps_the_memory_when_the_executor_is_gone() {
    let mut core = load_tiny();
    let state = core.contract.state.clone();
    let page = content(digest("page"), state.page_stride_bytes as usize);
    put(&mut core, state.pages_region, 3, &page);
    let mut copier = core.executor.copier().unwrap();
    drop(core);
    let mut read = vec![0; page.len()];
    copier.read_page(PageId(3), &mut read).unwrap();
    assert_eq!(read, page);
}
