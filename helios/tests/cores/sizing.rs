//! How many rows and pages a budget holds.

use helios::core::Core;
use helios::core::contract::BoundContract;
use helios::device::Placement;
use helios::memory::{Budget, MemoryError, plan};

use crate::support::TinyCore;

const ROW: u64 = 4096;
const PAGE: u64 = 8192;

fn contract() -> BoundContract {
    let folder = tempfile::tempdir().unwrap();
    TinyCore::new().write(folder.path());
    BoundContract::clone(&Core::open(folder.path()).unwrap().contract)
}

/// Weights, io, scratch, the null row and two live rows, and the two pages that a request takes.
fn needed(contract: &BoundContract) -> u64 {
    let fixed: u64 = contract.regions[..3].iter().map(|region| region.bytes).sum();
    fixed + 3 * ROW + 2 * PAGE
}

#[test]
fn a_budget_for_one_request_is_the_least() {
    let contract = contract();
    let bytes = needed(&contract);
    let smallest = plan(&contract, Budget::Limit { bytes }, Placement::Process).unwrap();
    assert_eq!((smallest.base_rows, smallest.snapshot_rows, smallest.pages), (3, 0, 2));
    assert_eq!(smallest.total_bytes(), bytes);

    let error = plan(&contract, Budget::Limit { bytes: bytes - 1 }, Placement::Process).unwrap_err();
    let MemoryError::TooSmall { needed_bytes, usable_bytes } = error else { panic!("{error}") };
    assert_eq!((needed_bytes, usable_bytes), (bytes, bytes - 1));
}

#[test]
fn snapshots_take_a_tenth_and_pages_the_rest() {
    let contract = contract();
    let bytes = needed(&contract) + 20 * PAGE;
    let sized = plan(&contract, Budget::Limit { bytes }, Placement::Process).unwrap();
    let snapshots = bytes / 10 / ROW;
    assert!(snapshots > 0);
    assert_eq!(u64::from(sized.snapshot_rows), snapshots);
    assert_eq!(u64::from(sized.pages), 2 + (20 * PAGE - snapshots * ROW) / PAGE);
    assert!(sized.total_bytes() <= bytes);
}

#[test]
fn more_memory_than_the_cache_can_use_is_left_alone() {
    let contract = contract();
    let sized = plan(&contract, Budget::Limit { bytes: 1 << 40 }, Placement::Process).unwrap();
    // Thirty-two snapshots and four contexts of four pages for each of two requests.
    assert_eq!((sized.snapshot_rows, sized.pages), (64, 32));
    assert_eq!((sized.backing().rows, sized.backing().pages), (67, 32));
}

#[test]
fn the_machine_keeps_headroom() {
    let contract = contract();
    let sized = plan(&contract, Budget::Machine { available_bytes: 100 << 30 }, Placement::Process).unwrap();
    assert_eq!(sized.headroom_bytes, 10 << 30);
    let sized = plan(&contract, Budget::Machine { available_bytes: 600 << 20 }, Placement::Process).unwrap();
    assert_eq!(sized.headroom_bytes, 512 << 20);
    let refused = plan(&contract, Budget::Machine { available_bytes: 100 << 20 }, Placement::Process);
    assert!(matches!(refused, Err(MemoryError::TooSmall { usable_bytes: 0, .. })));
}

#[test]
fn the_table_is_for_a_person() {
    let sized = plan(&contract(), Budget::Machine { available_bytes: 8 << 30 }, Placement::Process).unwrap();
    let table = sized.to_string();
    let expected = "\
weights               1 x     8.0 KiB =     8.0 KiB  mapped from the core's file
io                    1 x     8.0 KiB =     8.0 KiB
scratch               1 x     4.0 KiB =     4.0 KiB
live rows             3 x     4.0 KiB =    12.0 KiB
snapshot rows        64 x     4.0 KiB =   256.0 KiB
pages                32 x     8.0 KiB =   256.0 KiB  2048 tokens
total                                 =   544.0 KiB  and 819.1 MiB left to the machine";
    assert_eq!(table.lines().map(str::trim_end).collect::<Vec<_>>().join("\n"), expected);
}

#[test]
fn a_device_keeps_a_reserve_and_the_drivers_margin() {
    let contract = contract();
    let margin = 64 << 20;
    let left = (512 << 20) + margin;
    let available = |available_bytes| Budget::Device { available_bytes };
    let needed = needed(&contract);
    let sized = plan(&contract, available(needed + left), Placement::Device).unwrap();
    assert_eq!((sized.headroom_bytes, sized.total_bytes(), sized.pages), (left, needed, 2));
    assert!(plan(&contract, available(needed + left - 1), Placement::Device).is_err());
    assert!(plan(&contract, available(100 << 20), Placement::Device).is_err());

    // A user may give up the reserve, but not the margin.
    let all = available(needed + margin).limited_to(1 << 40);
    assert_eq!(plan(&contract, all, Placement::Device).unwrap().total_bytes(), needed);
    let limited = available(1 << 40).limited_to(needed);
    assert_eq!(plan(&contract, limited, Placement::Device).unwrap().total_bytes(), needed);
    assert!(plan(&contract, available(needed + margin - 1).limited_to(1 << 40), Placement::Device).is_err());
    assert_eq!(Budget::Machine { available_bytes: 1 }.limited_to(7), Budget::Limit { bytes: 7 });

    let table = plan(&contract, available(8 << 30), Placement::Device).unwrap().to_string();
    assert!(
        table.contains("copied to the device") && table.contains("576.0 MiB left to the device"),
        "{table}"
    );
}
