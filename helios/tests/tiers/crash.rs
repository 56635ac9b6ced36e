//! A process that is killed while it stores, again and again in one folder.
//!
//! The child is this test's own program: it opens the folder, stores checkpoints and says so, until it is killed. What it says is
//! what the parent counts before it kills, so that the moment is another in every round and nobody waits for time to pass.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use helios::ids::Digest;
use helios::tiers::{Checkpoint, DiskOptions, DiskTier, Geometry};

use super::{content, digest};

const ROUNDS: u64 = 50;
const GEOMETRY: Geometry = Geometry { page_bytes: 20_000, row_bytes: 5_000 };
/// About eight checkpoints, so that every round evicts too.
const BUDGET_BYTES: u64 = 700_000;
const FOLDER: &str = "FLARE_TEST_TIERS_FOLDER";
const ROUND: &str = "FLARE_TEST_TIERS_ROUND";
const CORE: Digest = Digest([7; 32]);
/// What the child says when a file is written and when a checkpoint is through.
const WRITTEN: u8 = 1;
const STORED: u8 = 2;

/// The conversations of a round: three that grow by a page at a time, on a page of the round and one that all rounds share.
fn checkpoint(round: u64, step: u64) -> Arc<Checkpoint> {
    let (conversation, turn) = (step % 3, step / 3);
    let page = |index: u64| match index {
        0 => digest("page of all rounds"),
        1 => digest(&format!("page of round {round}")),
        _ => digest(&format!("page {index} of {conversation} in round {round}")),
    };
    Arc::new(Checkpoint {
        key: digest(&format!("turn {turn} of {conversation} in round {round}")),
        block: digest("block"),
        consumed: u32::try_from(step).unwrap(),
        pages: (0..2 + turn % 12).map(page).collect(),
    })
}

fn open(folder: &Path) -> DiskTier {
    let options = DiskOptions { folder: folder.to_owned(), budget_bytes: BUDGET_BYTES };
    DiskTier::open(&options, CORE, GEOMETRY).unwrap()
}

#[test]
#[ignore = "the child of the test below, which kills it"]
fn store_until_killed() {
    let folder = PathBuf::from(std::env::var_os(FOLDER).expect("set by the parent"));
    let round: u64 = std::env::var(ROUND).unwrap().parse().unwrap();
    let mut tier = open(&folder);
    let mut output = std::io::stdout();
    let mut say = |byte: u8| {
        output.write_all(&[byte]).unwrap();
        output.flush().unwrap();
    };
    for step in 0.. {
        let checkpoint = checkpoint(round, step);
        let key = checkpoint.key;
        assert!(tier.begin(&checkpoint, Duration::ZERO).unwrap());
        for page in tier.missing(key) {
            tier.write_page(page, &content(page, GEOMETRY.page_bytes), Duration::ZERO).unwrap();
            say(WRITTEN);
        }
        tier.finish(&checkpoint, &content(key, GEOMETRY.row_bytes), Duration::ZERO).unwrap();
        say(STORED);
    }
}

/// Runs a child until it has said `files` bytes about files, kills it, and returns how many checkpoints it said were through.
fn crash(folder: &Path, round: u64, files: u64) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::store_until_killed", "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = child.stdout.take().unwrap();
    let (mut said, mut stored) = (0, 0);
    let mut count = |byte: u8| {
        said += u64::from(byte == WRITTEN || byte == STORED);
        stored += u64::from(byte == STORED);
        said
    };
    let mut byte = [0];
    // The test harness says something first, in text that has neither byte.
    while output.read(&mut byte).unwrap() == 1 && count(byte[0]) < files {}
    child.kill().unwrap();
    child.wait().unwrap();
    let mut rest = Vec::new();
    output.read_to_end(&mut rest).unwrap();
    rest.into_iter().for_each(|byte| {
        count(byte);
    });
    stored
}

/// Every checkpoint that is listed reads back exactly. Returns their keys.
fn verify(tier: &mut DiskTier) -> HashSet<Digest> {
    let listed: Vec<Arc<Checkpoint>> = tier.checkpoints().map(Arc::clone).collect();
    let mut page = vec![0; GEOMETRY.page_bytes];
    let mut row = vec![0; GEOMETRY.row_bytes];
    for checkpoint in &listed {
        for &name in &checkpoint.pages {
            tier.read_page(name, &mut page).unwrap();
            assert_eq!(page, content(name, GEOMETRY.page_bytes));
        }
        tier.read_row(checkpoint.key, &mut row).unwrap();
        assert_eq!(row, content(checkpoint.key, GEOMETRY.row_bytes));
    }
    listed.iter().map(|checkpoint| checkpoint.key).collect()
}

fn count_files(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| if entry.file_type().unwrap().is_dir() { count_files(&entry.path()) } else { 1 })
        .sum()
}

#[test]
fn a_kill_at_any_moment_loses_at_most_what_was_being_stored() {
    let folder = tempfile::tempdir().unwrap();
    let (mut stored_ever, mut interrupted) = (0, 0);
    for round in 0..ROUNDS {
        // A multiplicative walk through 0..53 that visits every number but the last few.
        let files = 1 + round * 29 % 53;
        let stored = crash(folder.path(), round, files);
        let found = count_files(folder.path());
        let mut tier = open(folder.path());
        let listed = verify(&mut tier);
        // The newest was used last, so nothing can have evicted it.
        if let Some(last) = stored.checked_sub(1) {
            assert!(listed.contains(&checkpoint(round, last).key), "round {round}: {stored} stored");
        }
        let counters = tier.counters();
        assert!(counters.bytes <= BUDGET_BYTES);
        let count = 1 + counters.pages + 2 * counters.checkpoints;
        assert_eq!(count_files(folder.path()), count, "round {round}: no file is left over");
        stored_ever += stored;
        interrupted += u64::from(found > count);
    }
    assert!(stored_ever > 2 * ROUNDS, "only {stored_ever} checkpoints were stored");
    // A checkpoint takes most of the time, so most kills come within one; a tenth shows that the moments are not all alike.
    assert!(interrupted > ROUNDS / 10, "only {interrupted} kills came within a checkpoint");
}
