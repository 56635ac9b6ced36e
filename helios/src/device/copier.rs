//! Copying single pages and rows beside a device's execution.

use super::DeviceError;
use crate::ids::{PageId, RowId};

/// Copies whole pages and rows between a device and this process, from a thread of its caller's choice.
///
/// Copies are ordered with nothing that the executor runs. The caller guarantees that whatever wrote the source is complete,
/// that nothing in flight writes it, and that nothing in flight reads or writes the destination; a caller that breaks
/// this copies a mix of old and new bytes. A copier keeps the device's memory in place after its executor is gone.
pub trait Copier: Send {
    /// Bytes of every page.
    fn page_bytes(&self) -> usize;

    /// Bytes of every row.
    fn row_bytes(&self) -> usize;

    /// Where pages and rows lie.
    fn placement(&self) -> Placement;

    /// Copies a page out; `into` has [`Copier::page_bytes`].
    fn read_page(&mut self, page: PageId, into: &mut [u8]) -> Result<(), DeviceError>;

    /// Copies a page in; `from` has [`Copier::page_bytes`].
    fn write_page(&mut self, page: PageId, from: &[u8]) -> Result<(), DeviceError>;

    /// Copies a row out; `into` has [`Copier::row_bytes`].
    fn read_row(&mut self, row: RowId, into: &mut [u8]) -> Result<(), DeviceError>;

    /// Copies a row in; `from` has [`Copier::row_bytes`].
    fn write_row(&mut self, row: RowId, from: &[u8]) -> Result<(), DeviceError>;
}

/// Where a device's pages and rows lie, for whoever thinks of copying them into this process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In this process's memory: a copy takes as much of it again.
    Process,
    /// In memory of the device's own.
    Device,
    /// In memory that the device shares with the processors, as one budget.
    Unified,
}
