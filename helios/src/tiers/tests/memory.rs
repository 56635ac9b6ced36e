//! The memory tier.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::device::Placement;
use crate::tiers::{MemoryTier, Part};

const PAGE_COST: u64 = GEOMETRY.page_bytes as u64;

fn tier(budget_bytes: u64) -> MemoryTier {
    MemoryTier::new(budget_bytes, GEOMETRY, Placement::Device).unwrap()
}

fn cost(checkpoints: &[Arc<Checkpoint>]) -> u64 {
    let names: u64 = checkpoints.iter().map(|checkpoint| checkpoint.pages.len() as u64).sum();
    distinct_pages(checkpoints) * PAGE_COST + checkpoints.len() as u64 * (100 + 512) + names * 256
}

fn fail() -> TierError {
    TierError::Off
}

/// Stores with a fill that fails at part `failing`, and says how many parts were asked for.
fn store(
    tier: &mut MemoryTier,
    checkpoint: &Arc<Checkpoint>,
    failing: usize,
) -> (Result<(), TierError>, usize) {
    let mut parts = 0;
    let stored = tier.store(checkpoint, &mut |part, into| {
        parts += 1;
        let name = match part {
            Part::Page(name) => name,
            Part::Row => checkpoint.key,
        };
        into.copy_from_slice(&content(name, into.len()));
        if parts == failing { Err(fail()) } else { Ok(()) }
    });
    (stored, parts)
}

fn check(tier: &MemoryTier, model: &Model) {
    tier.check_integrity();
    for number in 0..24 {
        let checkpoint = checkpoint(number);
        let is_held = model.holds(checkpoint.key);
        assert_eq!(tier.contains(checkpoint.key), is_held);
        assert_eq!(tier.row(checkpoint.key).is_some(), is_held);
        if is_held {
            assert_eq!(tier.row(checkpoint.key).unwrap(), content(checkpoint.key, GEOMETRY.row_bytes));
            for &page in &checkpoint.pages {
                assert_eq!(tier.page(page).unwrap(), content(page, GEOMETRY.page_bytes));
            }
        }
    }
    let counters = tier.counters();
    assert_eq!(counters.bytes, cost(&model.held));
    assert_eq!(counters.checkpoints, model.held.len() as u64);
    assert_eq!(counters.pages, distinct_pages(&model.held));
}

#[derive(Clone, Debug)]
enum Operation {
    Store {
        number: u32,
    },
    /// A store whose n-th part cannot be copied.
    Fail {
        number: u32,
        part: usize,
    },
    Touch {
        number: u32,
    },
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => (0..24u32).prop_map(|number| Operation::Store { number }),
        2 => (0..24u32, 1..9usize).prop_map(|(number, part)| Operation::Fail { number, part }),
        2 => (0..24u32).prop_map(|number| Operation::Touch { number }),
    ]
}

proptest! {
    #[test]
    fn memory_holds_what_the_model_holds(
        budget_bytes in 0..24_000u64,
        operations in prop::collection::vec(operation(), 0..120),
    ) {
        let mut tier = tier(budget_bytes);
        let mut model = Model::default();
        for operation in operations {
            match operation {
                Operation::Store { number } => {
                    let checkpoint = checkpoint(number);
                    let fits = model.store(&checkpoint, budget_bytes, cost);
                    let (stored, _) = store(&mut tier, &checkpoint, 0);
                    prop_assert_eq!(stored.is_ok(), fits, "{:?}", stored);
                    let is_too_large = matches!(stored, Err(TierError::TooLarge { .. }));
                    prop_assert_eq!(is_too_large, !fits);
                }
                Operation::Fail { number, part } => {
                    let checkpoint = checkpoint(number);
                    let mut attempted = model.clone();
                    let was_held = model.holds(checkpoint.key);
                    let fits = attempted.store(&checkpoint, budget_bytes, cost);
                    let (stored, parts) = store(&mut tier, &checkpoint, part);
                    if fits {
                        // What had to go for it is gone either way.
                        model = attempted;
                    }
                    if fits && !was_held && parts >= part {
                        prop_assert_eq!(stored, Err(fail()));
                        model.lose(|held| held.key == checkpoint.key);
                    }
                }
                Operation::Touch { number } => {
                    let key = checkpoint(number).key;
                    prop_assert_eq!(tier.touch(key), model.touch(key));
                }
            }
            check(&tier, &model);
            prop_assert_eq!(tier.take_dropped(), std::mem::take(&mut model.dropped));
        }
    }
}

#[test]
fn a_page_that_is_here_is_not_copied_again() {
    let mut tier = tier(1 << 20);
    // Three pages and a row, then one page and a row more on the same branch.
    assert_eq!(store(&mut tier, &checkpoint(9), 0), (Ok(()), 4));
    assert_eq!(store(&mut tier, &checkpoint(12), 0), (Ok(()), 2));
    assert_eq!(store(&mut tier, &checkpoint(12), 0), (Ok(()), 0));
    assert_eq!(tier.counters().pages, 4);
}

#[test]
fn unified_memory_has_no_memory_tier() {
    let refused = MemoryTier::new(1 << 20, GEOMETRY, Placement::Unified).err();
    assert_eq!(refused, Some(TierError::UnifiedMemory));
}
