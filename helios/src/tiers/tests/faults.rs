//! Disks that are full, in use, in the way or tampered with: typed errors, nothing lost that need not be, and nothing touched that
//! is not ours.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use rustix::io::Errno;

use super::*;

const BUDGET_BYTES: u64 = 1 << 20;
/// What checkpoint 9 takes alone: three pages, a row and a list of three pages.
const CHECKPOINT_COST_MAX: u64 = 3 * PAGE_COST + 4096 + 4096 + 156 + 3 * 32;

/// The next file that the tier writes meets a full disk.
fn fill_disk(folder: &Path) {
    symlink("/dev/full", folder.join(CORE.to_string()).join("incoming")).unwrap();
}

fn code(stored: Result<(), TierError>) -> i32 {
    match stored {
        Err(TierError::Io { code, .. }) => code,
        other => panic!("expected an error of the system: {other:?}"),
    }
}

#[test]
fn a_full_disk_stops_the_writing_for_a_while_and_leaves_the_rest_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut tier = open(folder.path(), BUDGET_BYTES);
    store(&mut tier, &checkpoint(9), Duration::ZERO).unwrap();
    let before = files(folder.path());
    for _ in 0..3 {
        assert!(!tier.counters().is_degraded);
        fill_disk(folder.path());
        assert_eq!(code(store(&mut tier, &checkpoint(10), Duration::ZERO)), Errno::NOSPC.raw_os_error());
        assert_eq!(files(folder.path()), before);
    }
    assert!(tier.counters().is_degraded);
    let paused = store(&mut tier, &checkpoint(10), Duration::from_millis(400));
    assert_eq!(paused, Err(TierError::Paused { retry_ms: 600 }));
    assert_eq!(read(&mut tier, &checkpoint(9)), Ok(()));
    store(&mut tier, &checkpoint(10), Duration::from_secs(1)).unwrap();
    assert!(!tier.counters().is_degraded);
    assert_eq!(tier.counters().store_failures, 4);
    assert_eq!(read(&mut tier, &checkpoint(10)), Ok(()));
}

#[test]
fn nothing_is_evicted_for_what_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut tier = open(folder.path(), 2 * CHECKPOINT_COST_MAX);
    let kept = [9, 10].map(checkpoint);
    for checkpoint in &kept {
        store(&mut tier, checkpoint, Duration::ZERO).unwrap();
    }
    fill_disk(folder.path());
    store(&mut tier, &checkpoint(11), Duration::ZERO).unwrap_err();
    assert_eq!(tier.take_dropped(), [kept[0].key], "the first failure is a surprise");
    for _ in 0..2 {
        fill_disk(folder.path());
        let failed = store(&mut tier, &checkpoint(11), Duration::ZERO);
        assert_eq!(code(failed), Errno::NOSPC.raw_os_error());
    }
    assert!(tier.counters().is_degraded);
    assert_eq!(tier.take_dropped(), []);
    assert_eq!(read(&mut tier, &kept[1]), Ok(()));
}

#[test]
fn a_disk_that_fills_up_within_a_checkpoint_keeps_none_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut tier = open(folder.path(), BUDGET_BYTES);
    let checkpoint = checkpoint(12);
    for written in 0..=checkpoint.pages.len() + 1 {
        assert_eq!(tier.begin(&checkpoint, Duration::ZERO), Ok(true));
        for page in tier.missing(checkpoint.key).into_iter().take(written) {
            tier.write_page(page, &content(page, GEOMETRY.page_bytes), Duration::ZERO).unwrap();
        }
        if written <= checkpoint.pages.len() {
            fill_disk(folder.path());
            let failed = match tier.missing(checkpoint.key).first() {
                Some(&page) => tier.write_page(page, &[0; GEOMETRY.page_bytes], Duration::ZERO),
                None => tier.finish(&checkpoint, &[0; GEOMETRY.row_bytes], Duration::ZERO),
            };
            assert!(matches!(failed, Err(TierError::Io { .. })));
            tier.abandon(checkpoint.key);
            assert_eq!(tier.counters().bytes, 0);
            assert_eq!(files(folder.path()).len(), 1, "the lock");
            // One success, so that the next failure is the first in a row again.
            store(&mut tier, &super::checkpoint(0), Duration::ZERO).unwrap();
            drop(tier);
            fs::remove_dir_all(folder.path().join(CORE.to_string())).unwrap();
            tier = open(folder.path(), BUDGET_BYTES);
        }
    }
    tier.finish(&checkpoint, &content(checkpoint.key, GEOMETRY.row_bytes), Duration::ZERO).unwrap();
    assert_eq!(read(&mut tier, &checkpoint), Ok(()));
}

#[test]
fn a_folder_that_cannot_be_used_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "a person's").unwrap();
    let below_a_file = try_open(&folder.path().join("file/cache"), BUDGET_BYTES).err();
    assert!(matches!(below_a_file, Some(TierError::Io { .. })), "{below_a_file:?}");
    // Nobody may make folders there, not even root.
    let unwritable = try_open(Path::new("/proc/self/cache"), BUDGET_BYTES).err();
    assert!(matches!(unwritable, Some(TierError::Io { .. })), "{unwritable:?}");
    let core = folder.path().join(CORE.to_string());
    fs::create_dir(&core).unwrap();
    fs::write(core.join("pages"), "a person's").unwrap();
    let obstructed = try_open(folder.path(), BUDGET_BYTES).err();
    assert!(matches!(obstructed, Some(TierError::Io { .. })), "{obstructed:?}");
    assert_eq!(fs::read_to_string(core.join("pages")).unwrap(), "a person's");
}

#[test]
fn one_process_at_a_time_uses_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path(), BUDGET_BYTES);
    let second = try_open(folder.path(), BUDGET_BYTES).err();
    assert_eq!(second, Some(TierError::InUse { folder: folder.path().to_owned() }));
    drop(first);
    open(folder.path(), BUDGET_BYTES);
}

#[test]
fn only_their_owner_can_read_conversations() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("cache");
    let mut tier = open(&folder, BUDGET_BYTES);
    store(&mut tier, &checkpoint(3), Duration::ZERO).unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&file(&folder, "pages", checkpoint(3).pages[0])), 0o600);
}

#[test]
fn another_cores_files_go_and_foreign_ones_stay() {
    let folder = tempfile::tempdir().unwrap();
    let other = Digest([0xAB; 32]);
    let options = DiskOptions { folder: folder.path().to_owned(), budget_bytes: BUDGET_BYTES };
    let mut tier = DiskTier::open(&options, other, GEOMETRY).unwrap();
    store(&mut tier, &checkpoint(9), Duration::ZERO).unwrap();
    store(&mut tier, &checkpoint(0), Duration::ZERO).unwrap();
    drop(tier);
    let (core, other) = (folder.path().join(CORE.to_string()), folder.path().join(other.to_string()));
    let digest = "ab".repeat(32);
    let foreign = [
        folder.path().join("notes.txt"),
        folder.path().join(digest.to_uppercase()).join("pages/ab").join(&digest),
        folder.path().join("incoming"),
        other.join("notes.txt"),
        other.join("pages/ab/notes.txt"),
        other.join("pages/cd").join(&digest),
        other.join("pages").join(&digest),
        other.join("more/ab").join(&digest),
        core.join("notes.txt"),
        core.join("pages/ab/notes.txt"),
        core.join("pages/cd").join(&digest),
        core.join("more/ab").join(&digest),
    ];
    for path in &foreign {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "a person's").unwrap();
    }
    // What a link leads to is nobody's business, whatever its name.
    let target = tempfile::tempdir().unwrap();
    let linked = target.path().join("pages/ab").join(&digest);
    fs::create_dir_all(linked.parent().unwrap()).unwrap();
    fs::write(&linked, "a person's").unwrap();
    symlink(target.path(), folder.path().join("cd".repeat(32))).unwrap();
    symlink(&linked, core.join("pages/ab").join(&digest)).unwrap();

    let mut tier = open(folder.path(), BUDGET_BYTES);
    assert_eq!(tier.checkpoints().count(), 0);
    store(&mut tier, &checkpoint(9), Duration::ZERO).unwrap();
    drop(tier);
    let mut expected = foreign.to_vec();
    expected.push(folder.path().join("flare.lock"));
    expected.push(folder.path().join("cd".repeat(32)));
    expected.push(core.join("pages/ab").join(&digest));
    expected.extend(checkpoint(9).pages.iter().map(|&page| file(folder.path(), "pages", page)));
    expected.extend(["rows", "checkpoints"].map(|kind| file(folder.path(), kind, checkpoint(9).key)));
    expected.sort();
    assert_eq!(files(folder.path()), expected);
    assert_eq!(fs::read_to_string(linked).unwrap(), "a person's");
}

#[test]
fn a_file_under_anothers_name_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let mut tier = open(folder.path(), BUDGET_BYTES);
    let (first, second) = (checkpoint(12), checkpoint(13));
    store(&mut tier, &first, Duration::ZERO).unwrap();
    store(&mut tier, &second, Duration::ZERO).unwrap();
    let page = |checkpoint: &Checkpoint| file(folder.path(), "pages", checkpoint.pages[3]);
    fs::copy(page(&first), page(&second)).unwrap();
    let damaged = read(&mut tier, &second);
    assert!(
        matches!(&damaged, Err(TierError::Damaged { path, .. }) if *path == page(&second)),
        "{damaged:?}"
    );
    assert_eq!(tier.take_dropped(), [second.key]);
    assert_eq!(read(&mut tier, &first), Ok(()));
    // Nor is a whole core's folder.
    drop(tier);
    let other = Digest([1; 32]);
    fs::rename(folder.path().join(CORE.to_string()), folder.path().join(other.to_string())).unwrap();
    let options = DiskOptions { folder: folder.path().to_owned(), budget_bytes: BUDGET_BYTES };
    assert_eq!(DiskTier::open(&options, other, GEOMETRY).unwrap().checkpoints().count(), 0);
    assert_eq!(files(folder.path()).len(), 1);
}

#[test]
fn another_geometrys_or_versions_files_go() {
    let folder = tempfile::tempdir().unwrap();
    let options = DiskOptions { folder: folder.path().to_owned(), budget_bytes: BUDGET_BYTES };
    let mut tier = open(folder.path(), BUDGET_BYTES);
    store(&mut tier, &checkpoint(9), Duration::ZERO).unwrap();
    drop(tier);
    let wider = Geometry { page_bytes: 301, row_bytes: 100 };
    assert_eq!(DiskTier::open(&options, CORE, wider).unwrap().checkpoints().count(), 0);
    assert_eq!(files(folder.path()).len(), 1);

    let mut tier = open(folder.path(), BUDGET_BYTES);
    store(&mut tier, &checkpoint(9), Duration::ZERO).unwrap();
    drop(tier);
    let list = file(folder.path(), "checkpoints", checkpoint(9).key);
    let mut bytes = fs::read(&list).unwrap();
    assert_eq!(bytes[8..12], 1u32.to_le_bytes());
    bytes[8] = 2;
    let end = bytes.len() - 32;
    let resealed = sha2::Sha256::digest(&bytes[..end]);
    bytes[end..].copy_from_slice(&resealed);
    fs::write(&list, bytes).unwrap();
    assert_eq!(open(folder.path(), BUDGET_BYTES).checkpoints().count(), 0);
    assert_eq!(files(folder.path()).len(), 1);
}

#[test]
fn a_folder_that_vanishes_costs_its_checkpoints_and_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut tier = open(folder.path(), BUDGET_BYTES);
    store(&mut tier, &checkpoint(9), Duration::ZERO).unwrap();
    for kind in ["pages", "rows", "checkpoints"] {
        fs::remove_dir_all(folder.path().join(CORE.to_string()).join(kind)).unwrap();
    }
    assert_eq!(code(read(&mut tier, &checkpoint(9))), Errno::NOENT.raw_os_error());
    assert_eq!(tier.take_dropped(), [checkpoint(9).key]);
    store(&mut tier, &checkpoint(9), Duration::ZERO).unwrap();
    assert_eq!(read(&mut tier, &checkpoint(9)), Ok(()));
}

#[test]
fn a_page_that_is_lost_while_it_is_relied_on_is_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut tier = open(folder.path(), BUDGET_BYTES);
    let (short, long) = (checkpoint(9), checkpoint(12));
    store(&mut tier, &short, Duration::ZERO).unwrap();
    assert_eq!(tier.begin(&long, Duration::ZERO), Ok(true));
    assert_eq!(tier.missing(long.key), [long.pages[3]]);
    fs::remove_file(file(folder.path(), "pages", short.pages[1])).unwrap();
    read(&mut tier, &short).unwrap_err();
    assert_eq!(tier.take_dropped(), [short.key]);
    assert_eq!(tier.missing(long.key), [long.pages[1], long.pages[3]]);
}

#[test]
fn a_file_that_cannot_be_removed_keeps_its_part_of_the_budget() {
    let folder = tempfile::tempdir().unwrap();
    let mut tier = open(folder.path(), BUDGET_BYTES);
    store(&mut tier, &checkpoint(3), Duration::ZERO).unwrap();
    let page = file(folder.path(), "pages", checkpoint(3).pages[0]);
    fs::remove_file(&page).unwrap();
    fs::create_dir(&page).unwrap();
    read(&mut tier, &checkpoint(3)).unwrap_err();
    assert_eq!(tier.counters().budget_bytes, BUDGET_BYTES - PAGE_COST);
    assert_eq!(tier.counters().bytes, 0);
}
