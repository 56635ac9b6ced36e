//! Sizing: how many rows and pages a budget holds.
//!
//! Weights, io, scratch and live rows are what the core says. Of the rest, snapshot rows come first, up to a share of the budget,
//! and pages take what remains, up to a number beyond which even the prefix cache has no use for them.

use std::fmt;

use crate::core::contract::{BoundContract, RegionRole};
use crate::device::{Backing, Placement};

/// Snapshot rows for each request slot: the endpoints of a running conversation and of a few idle ones.
const SNAPSHOTS_PER_REQUEST: u64 = 32;
/// Snapshots take at most one part in this many of the budget.
const SNAPSHOT_SHARE: u64 = 10;
/// Whole contexts of pages for each request slot: one that runs and three that are cached.
const CONTEXTS_PER_REQUEST: u64 = 4;
/// Pages without which no request can start: its prompt's and its output's.
const PAGES_MIN: u32 = 2;
/// Left to the rest of the machine: one part in this many of what is available, and no less than the bytes below.
const HEADROOM_SHARE: u64 = 10;
const HEADROOM_BYTES_MIN: u64 = 512 << 20;
/// Left free on a device of its own memory: for whatever else runs there, and for what the driver takes as it goes.
const DEVICE_RESERVE_BYTES: u64 = 512 << 20;
const DRIVER_MARGIN_BYTES: u64 = 64 << 20;

/// Memory that a core may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// What the user allowed, all of it for the core.
    Limit { bytes: u64 },
    /// What the machine has available, of which some is left to others.
    Machine { available_bytes: u64 },
    /// What a device of its own memory has available, of which a reserve and the driver's margin are left.
    Device { available_bytes: u64 },
}

impl Budget {
    /// What the user allows of it. On the host the limit is the user's word alone: what is mapped there may be swapped or
    /// shared. A device has no more than it has.
    pub fn limited_to(self, limit_bytes: u64) -> Self {
        match self {
            Self::Limit { .. } | Self::Machine { .. } => Self::Limit { bytes: limit_bytes },
            Self::Device { available_bytes } => {
                let most = available_bytes.saturating_sub(DRIVER_MARGIN_BYTES);
                Self::Limit { bytes: limit_bytes.min(most) }
            }
        }
    }

    /// Bytes for the core, and bytes left to others.
    fn split(self) -> (u64, u64) {
        match self {
            Self::Limit { bytes } => (bytes, 0),
            Self::Machine { available_bytes } => {
                let headroom =
                    (available_bytes / HEADROOM_SHARE).max(HEADROOM_BYTES_MIN).min(available_bytes);
                (available_bytes - headroom, headroom)
            }
            Self::Device { available_bytes } => {
                let headroom = (DEVICE_RESERVE_BYTES + DRIVER_MARGIN_BYTES).min(available_bytes);
                (available_bytes - headroom, headroom)
            }
        }
    }
}

/// What a core takes of a budget. Displays as a table for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Where the core lies. On the host, weights are the core's file itself, shared with whoever maps it too.
    pub placement: Placement,
    pub weights_bytes: u64,
    pub io_bytes: u64,
    pub scratch_bytes: u64,
    /// The null row and every slot's live rows.
    pub base_rows: u32,
    pub snapshot_rows: u32,
    pub row_bytes: u64,
    pub pages: u32,
    pub page_bytes: u64,
    pub page_tokens: u32,
    pub headroom_bytes: u64,
}

impl MemoryPlan {
    /// The counts to back.
    pub fn backing(&self) -> Backing {
        Backing { rows: self.base_rows + self.snapshot_rows, pages: self.pages }
    }

    /// Everything that the core takes.
    pub fn total_bytes(&self) -> u64 {
        let rows = u64::from(self.base_rows) + u64::from(self.snapshot_rows);
        self.weights_bytes
            + self.io_bytes
            + self.scratch_bytes
            + rows * self.row_bytes
            + u64::from(self.pages) * self.page_bytes
    }
}

/// Why a core does not fit.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The budget does not hold one request.
    #[error(
        "serving one request of this core takes {}, and {} may be used; free memory, raise --memory, or prepare the core with a smaller --context or --max-concurrency",
        Size(*needed_bytes), Size(*usable_bytes)
    )]
    TooSmall { needed_bytes: u64, usable_bytes: u64 },
    /// The machine's memory could not be determined.
    #[error("cannot tell how much memory is available ({0}); say how much to use with --memory")]
    Unknown(#[from] std::io::Error),
}

/// Decides the number of rows and pages.
pub fn plan(
    contract: &BoundContract,
    budget: Budget,
    placement: Placement,
) -> Result<MemoryPlan, MemoryError> {
    let state = &contract.state;
    let (usable_bytes, headroom_bytes) = budget.split();
    let role_bytes = |role| {
        let regions = contract.regions.iter().filter(|region| region.role == role);
        regions.map(|region| region.bytes).sum()
    };
    let mut plan = MemoryPlan {
        placement,
        weights_bytes: role_bytes(RegionRole::Weights),
        io_bytes: role_bytes(RegionRole::Io),
        scratch_bytes: role_bytes(RegionRole::Scratch),
        base_rows: state.base_rows(contract.limits.requests_max),
        snapshot_rows: 0,
        row_bytes: state.row_stride_bytes,
        pages: PAGES_MIN.min(state.pages_per_request_max),
        page_bytes: state.page_stride_bytes,
        page_tokens: state.page_tokens,
        headroom_bytes,
    };
    let needed_bytes = plan.total_bytes();
    let spare_bytes =
        usable_bytes.checked_sub(needed_bytes).ok_or(MemoryError::TooSmall { needed_bytes, usable_bytes })?;

    let requests = u64::from(contract.limits.requests_max);
    let reserved = |region: u32, stride_bytes| contract.regions[region as usize].bytes / stride_bytes;
    let snapshots = (requests * SNAPSHOTS_PER_REQUEST)
        .min(usable_bytes / SNAPSHOT_SHARE / plan.row_bytes)
        .min(spare_bytes / plan.row_bytes)
        .min(reserved(state.rows_region, plan.row_bytes) - u64::from(plan.base_rows));
    let spare_bytes = spare_bytes - snapshots * plan.row_bytes;
    let pages = (u64::from(plan.pages) + spare_bytes / plan.page_bytes)
        .min(requests * CONTEXTS_PER_REQUEST * u64::from(state.pages_per_request_max))
        .min(reserved(state.pages_region, plan.page_bytes));
    plan.snapshot_rows = count(snapshots);
    plan.pages = count(pages);
    Ok(plan)
}

fn count(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |what: &str, count: u32, each: u64, note: &str| {
            let total = Size(u64::from(count) * each).to_string();
            let each = Size(each).to_string();
            writeln!(formatter, "{what:<15}{count:>8} x {each:>11} = {total:>11}  {note}")
        };
        let tokens = u64::from(self.pages) * u64::from(self.page_tokens);
        let (weights, owner) = match self.placement {
            Placement::Process => ("mapped from the core's file", "machine"),
            Placement::Device => ("copied to the device", "device"),
            Placement::Unified => ("copied to memory that device and machine share", "machine"),
        };
        line("weights", 1, self.weights_bytes, weights)?;
        line("io", 1, self.io_bytes, "")?;
        line("scratch", 1, self.scratch_bytes, "")?;
        line("live rows", self.base_rows, self.row_bytes, "")?;
        line("snapshot rows", self.snapshot_rows, self.row_bytes, "")?;
        line("pages", self.pages, self.page_bytes, &format!("{tokens} tokens"))?;
        write!(formatter, "{:<38}= {:>11}", "total", Size(self.total_bytes()).to_string())?;
        if self.headroom_bytes > 0 {
            write!(formatter, "  and {} left to the {owner}", Size(self.headroom_bytes))?;
        }
        Ok(())
    }
}

/// Bytes as a person reads them.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0..0x40_0000 => (1u64 << 10, "KiB"),
            0x40_0000..0x1_0000_0000 => (1 << 20, "MiB"),
            _ => (1 << 30, "GiB"),
        };
        let (whole, rest) = (self.0 / unit, self.0 % unit * 10 / unit);
        write!(formatter, "{whole}.{rest} {name}")
    }
}
