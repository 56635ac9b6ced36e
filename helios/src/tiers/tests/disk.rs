//! The disk tier against a naive model, over restarts and damage.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::SystemTime;

use proptest::prelude::*;

use super::*;

const KINDS: [&str; 3] = ["pages", "rows", "checkpoints"];

fn cost(checkpoints: &[Arc<Checkpoint>]) -> u64 {
    let entries = checkpoints.iter().map(|checkpoint| {
        // The row's block, one for the end of the list, and the list.
        4096 + 4096 + (120 + 36) + 32 * checkpoint.pages.len() as u64
    });
    distinct_pages(checkpoints) * PAGE_COST + entries.sum::<u64>()
}

/// The held checkpoints read back exactly, no others are listed, and no file is there that none of them needs.
fn check(tier: &mut DiskTier, folder: &Path, model: &Model) {
    let listed: Vec<Arc<Checkpoint>> = tier.checkpoints().map(Arc::clone).collect();
    assert_eq!(listed, model.held);
    for checkpoint in &listed {
        assert_eq!(read(tier, checkpoint), Ok(()));
    }
    let counters = tier.counters();
    assert_eq!((counters.bytes, counters.pages), (cost(&model.held), distinct_pages(&model.held)));
    let count = files(folder).len() as u64;
    assert_eq!(count, 1 + distinct_pages(&model.held) + 2 * model.held.len() as u64, "and the lock");
}

/// Gives the files the times that the model's order of use has.
fn date(folder: &Path, model: &Model) {
    for (checkpoint, second) in model.held.iter().zip(0..) {
        let file = File::options().write(true).open(file(folder, "checkpoints", checkpoint.key)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(second)).unwrap();
    }
}

#[derive(Clone, Debug)]
enum Damage {
    Flip { byte: usize, bit: u8 },
    Cut { bytes: usize },
    Extend,
    Remove,
}

impl Damage {
    fn inflict(&self, path: &Path) {
        let length = path.metadata().unwrap().len();
        let file = File::options().read(true).write(true).open(path).unwrap();
        match *self {
            Self::Flip { byte, bit } => {
                let place = byte as u64 % length;
                let mut value = [0];
                file.read_exact_at(&mut value, place).unwrap();
                file.write_all_at(&[value[0] ^ 1 << (bit % 8)], place).unwrap();
            }
            Self::Cut { bytes } => file.set_len(bytes as u64 % length).unwrap(),
            Self::Extend => file.set_len(length + 1).unwrap(),
            Self::Remove => std::fs::remove_file(path).unwrap(),
        }
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        3 => (any::<usize>(), any::<u8>()).prop_map(|(byte, bit)| Damage::Flip { byte, bit }),
        1 => any::<usize>().prop_map(|bytes| Damage::Cut { bytes }),
        1 => Just(Damage::Remove),
    ]
}

#[derive(Clone, Debug)]
enum Operation {
    Store {
        number: u32,
    },
    Touch {
        number: u32,
    },
    /// The process ends within a store, after this many pages, and another opens the folder with this budget.
    Restart {
        number: u32,
        pages: usize,
        budget_bytes: u64,
    },
    /// A page or row is damaged, and read.
    Damage {
        file: usize,
        damage: Damage,
    },
    /// Any file is damaged between two processes.
    DamageAtRest {
        file: usize,
        damage: Damage,
    },
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        8 => (0..24u32).prop_map(|number| Operation::Store { number }),
        2 => (0..24u32).prop_map(|number| Operation::Touch { number }),
        1 => (0..24u32, 0..9usize, budget())
            .prop_map(|(number, pages, budget_bytes)| Operation::Restart { number, pages, budget_bytes }),
        2 => (any::<usize>(), damage()).prop_map(|(file, damage)| Operation::Damage { file, damage }),
        1 => (any::<usize>(), damage()).prop_map(|(file, damage)| Operation::DamageAtRest { file, damage }),
    ]
}

fn budget() -> impl Strategy<Value = u64> {
    0..30 * 4096u64
}

/// What a file of one of the kinds holds, by its path.
fn label(path: &Path) -> (String, Digest) {
    let kind = path.parent().unwrap().parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    let names = (0..24).map(checkpoint).flat_map(|checkpoint| {
        let mut names = checkpoint.pages.clone();
        names.push(checkpoint.key);
        names
    });
    let name = path.file_name().unwrap().to_str().unwrap();
    let key = names.into_iter().find(|key| key.to_string() == name).unwrap();
    (kind, key)
}

fn files_of(folder: &Path, kinds: &[&str]) -> Vec<PathBuf> {
    let core = folder.join(CORE.to_string());
    let folders = kinds.iter().map(|kind| core.join(kind)).filter(|folder| folder.exists());
    folders.flat_map(|folder| files(&folder)).collect()
}

/// A directory, the tier that is open on it, and the model of both.
struct Subject {
    folder: tempfile::TempDir,
    tier: Option<DiskTier>,
    model: Model,
    budget_bytes: u64,
}

impl Subject {
    fn new(budget_bytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tier = Some(open(folder.path(), budget_bytes));
        Self { folder, tier, model: Model::default(), budget_bytes }
    }

    fn tier(&mut self) -> &mut DiskTier {
        self.tier.as_mut().unwrap()
    }

    fn run(&mut self, operation: Operation) {
        let folder = self.folder.path().to_owned();
        match operation {
            Operation::Store { number } => {
                let checkpoint = checkpoint(number);
                let fits = self.model.store(&checkpoint, self.budget_bytes, cost);
                let stored = store(self.tier(), &checkpoint, Duration::ZERO);
                assert_eq!(stored.is_ok(), fits, "{stored:?}");
            }
            Operation::Touch { number } => {
                let key = checkpoint(number).key;
                assert_eq!(self.tier().touch(key), self.model.touch(key));
            }
            Operation::Restart { number, pages, budget_bytes } => {
                self.begin(&checkpoint(number), pages);
                self.restart(budget_bytes);
            }
            Operation::Damage { file, damage } => {
                let files = files_of(&folder, &["pages", "rows"]);
                if let Some(path) = files.get(file % files.len().max(1)) {
                    damage.inflict(path);
                    self.lose_damaged(&label(path));
                }
            }
            Operation::DamageAtRest { file, damage } => {
                let files = files_of(&folder, &KINDS);
                if let Some(path) = files.get(file % files.len().max(1)) {
                    date(&folder, &self.model);
                    self.tier = None;
                    let label = label(path);
                    damage.inflict(path);
                    self.tier = Some(open(&folder, self.budget_bytes));
                    match label.0.as_str() {
                        "checkpoints" => self.model.lose(|held| held.key == label.1),
                        _ => self.lose_damaged(&label),
                    }
                }
            }
        }
    }

    /// Stores all but the end of a checkpoint.
    fn begin(&mut self, checkpoint: &Arc<Checkpoint>, pages: usize) {
        let tier = self.tier.as_mut().unwrap();
        if self.model.holds(checkpoint.key) || !matches!(tier.begin(checkpoint, Duration::ZERO), Ok(true)) {
            return;
        }
        for page in tier.missing(checkpoint.key).into_iter().take(pages) {
            tier.write_page(page, &content(page, GEOMETRY.page_bytes), Duration::ZERO).unwrap();
        }
        assert!(self.model.store(checkpoint, self.budget_bytes, cost), "the tier let it begin");
        self.model.lose(|held| held.key == checkpoint.key);
    }

    fn restart(&mut self, budget_bytes: u64) {
        date(self.folder.path(), &self.model);
        self.tier = None;
        self.tier = Some(open(self.folder.path(), budget_bytes));
        self.budget_bytes = budget_bytes;
        let former = std::mem::take(&mut self.model).held;
        for checkpoint in &former {
            self.model.store(checkpoint, budget_bytes, cost);
        }
        self.model.dropped.clear();
    }

    /// Reading finds the damage, and what needs the file is gone.
    fn lose_damaged(&mut self, (kind, key): &(String, Digest)) {
        let is_lost = |held: &Checkpoint| match kind.as_str() {
            "pages" => held.pages.contains(key),
            _ => held.key == *key,
        };
        let tier = self.tier.as_mut().unwrap();
        let mut found = Vec::new();
        for checkpoint in self.model.held.iter().filter(|held| is_lost(held)) {
            assert!(read(tier, checkpoint).is_err(), "{kind} {key}");
            found.push(checkpoint.key);
        }
        assert!(!found.is_empty(), "no file is there that nothing needs");
        let dropped = tier.take_dropped();
        // Opening may have found it already, before anybody had heard of the checkpoint.
        assert!(dropped.is_empty() || dropped.iter().all(|key| found.contains(key)));
        self.model.lose(is_lost);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_disk_holds_what_the_model_holds(
        budget_bytes in budget(),
        operations in prop::collection::vec(operation(), 0..40),
    ) {
        let mut subject = Subject::new(budget_bytes);
        for operation in operations {
            subject.run(operation);
            let dropped = std::mem::take(&mut subject.model.dropped);
            let tier = subject.tier.as_mut().unwrap();
            let reported = tier.take_dropped();
            prop_assert!(reported.is_empty() || reported == dropped);
            check(tier, subject.folder.path(), &subject.model);
        }
    }
}

#[test]
fn a_longer_file_is_not_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut tier = open(folder.path(), 1 << 20);
    store(&mut tier, &checkpoint(9), Duration::ZERO).unwrap();
    drop(tier);
    Damage::Extend.inflict(&file(folder.path(), "rows", checkpoint(9).key));
    assert_eq!(open(folder.path(), 1 << 20).checkpoints().count(), 0);
    assert_eq!(files(folder.path()).len(), 1, "nothing but the lock is left");
}

#[test]
fn what_was_used_last_is_evicted_last_after_a_restart_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut tier = open(folder.path(), 1 << 20);
    let model = Model { held: [3, 4, 5].map(checkpoint).to_vec(), dropped: Vec::new() };
    for checkpoint in &model.held {
        store(&mut tier, checkpoint, Duration::ZERO).unwrap();
    }
    date(folder.path(), &model);
    assert!(tier.touch(checkpoint(3).key));
    drop(tier);
    let tier = open(folder.path(), cost(&model.held[..2]));
    let listed: Vec<u32> = tier.checkpoints().map(|checkpoint| checkpoint.consumed / 17).collect();
    assert_eq!(listed, [5, 3]);
}
