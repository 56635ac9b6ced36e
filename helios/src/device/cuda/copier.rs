//! The CUDA copier: pages and rows over a stream of their own, beside the programs.

use std::sync::Arc;

use super::bounce::Bounce;
use super::memory::Memory;
use crate::device::{Copier, DeviceError, Placement};
use crate::ids::{PageId, RowId};

/// Copies pages and rows of one executor's memory, which stays in place for as long as the copier is there.
pub struct CudaCopier {
    bounce: Bounce,
    pages: Strided,
    rows: Strided,
    placement: Placement,
    memory: Arc<Memory>,
}

/// Equal parts of a region, of which the first `count` are backed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strided {
    pub address: u64,
    pub stride_bytes: u64,
    pub count: u32,
}

impl CudaCopier {
    pub(super) fn new(
        memory: Arc<Memory>,
        pages: Strided,
        rows: Strided,
        placement: Placement,
    ) -> Result<Self, DeviceError> {
        Ok(Self { bounce: Bounce::new(&memory.context)?, pages, rows, placement, memory })
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.memory.context.bind()?;
        self.bounce.read(address, into)
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.memory.context.bind()?;
        self.bounce.write(address, from)
    }
}

impl Copier for CudaCopier {
    fn page_bytes(&self) -> usize {
        self.pages.part_bytes()
    }

    fn row_bytes(&self) -> usize {
        self.rows.part_bytes()
    }

    fn placement(&self) -> Placement {
        self.placement
    }

    fn read_page(&mut self, page: PageId, into: &mut [u8]) -> Result<(), DeviceError> {
        self.read(self.pages.locate(page.0, into.len())?, into)
    }

    fn write_page(&mut self, page: PageId, from: &[u8]) -> Result<(), DeviceError> {
        self.write(self.pages.locate(page.0, from.len())?, from)
    }

    fn read_row(&mut self, row: RowId, into: &mut [u8]) -> Result<(), DeviceError> {
        self.read(self.rows.locate(row.0, into.len())?, into)
    }

    fn write_row(&mut self, row: RowId, from: &[u8]) -> Result<(), DeviceError> {
        self.write(self.rows.locate(row.0, from.len())?, from)
    }
}

impl Strided {
    fn part_bytes(&self) -> usize {
        usize::try_from(self.stride_bytes).expect("a part of a region fits the address space")
    }

    /// The address of part `index`.
    fn locate(&self, index: u32, length: usize) -> Result<u64, DeviceError> {
        assert_eq!(length, self.part_bytes(), "copies are of whole pages and rows");
        let address = self.address.saturating_add(u64::from(index).saturating_mul(self.stride_bytes));
        if index < self.count {
            Ok(address)
        } else {
            Err(DeviceError::Unmapped { address, bytes: self.stride_bytes })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_not_backed_is_refused() {
        let strided = Strided { address: 0x2000_0000_0000, stride_bytes: 3000, count: 2 };
        assert_eq!(strided.locate(1, 3000), Ok(0x2000_0000_0000 + 3000));
        let outside = DeviceError::Unmapped { address: 0x2000_0000_0000 + 6000, bytes: 3000 };
        assert_eq!(strided.locate(2, 3000), Err(outside));
        assert!(strided.locate(u32::MAX, 3000).is_err());
    }
}
