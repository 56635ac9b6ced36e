//! The host device's copier: plain copies to and from the mapped pages and rows.
#![expect(unsafe_code, reason = "copying to and from memory that kernels use")]

use std::sync::Arc;

use super::mapping::Mapping;
use crate::device::{Copier, DeviceError, Placement};
use crate::ids::{PageId, RowId};

/// Copies pages and rows of one executor's memory, which stays mapped for as long as the copier is there.
pub struct HostCopier {
    pub(super) pages: Strided,
    pub(super) rows: Strided,
}

/// Equal parts of a mapping, of which the first `count` are backed.
pub(super) struct Strided {
    pub(super) mapping: Arc<Mapping>,
    pub(super) stride_bytes: u64,
    pub(super) count: u32,
}

impl Copier for HostCopier {
    fn page_bytes(&self) -> usize {
        self.pages.part_bytes()
    }

    fn row_bytes(&self) -> usize {
        self.rows.part_bytes()
    }

    fn placement(&self) -> Placement {
        Placement::Process
    }

    fn read_page(&mut self, page: PageId, into: &mut [u8]) -> Result<(), DeviceError> {
        self.pages.read(page.0, into)
    }

    fn write_page(&mut self, page: PageId, from: &[u8]) -> Result<(), DeviceError> {
        self.pages.write(page.0, from)
    }

    fn read_row(&mut self, row: RowId, into: &mut [u8]) -> Result<(), DeviceError> {
        self.rows.read(row.0, into)
    }

    fn write_row(&mut self, row: RowId, from: &[u8]) -> Result<(), DeviceError> {
        self.rows.write(row.0, from)
    }
}

impl Strided {
    fn part_bytes(&self) -> usize {
        usize::try_from(self.stride_bytes).expect("a part of a mapping fits the address space")
    }

    fn read(&self, index: u32, into: &mut [u8]) -> Result<(), DeviceError> {
        let offset_bytes = self.locate(index, into.len())?;
        // SAFETY: a copier's caller has seen the completion of whatever wrote these bytes and has nothing in flight that
        // writes them. Kernels are machine code that Rust cannot see into: breaking this reads a mix of old and new bytes.
        unsafe { self.mapping.read(offset_bytes, into) }
    }

    fn write(&self, index: u32, from: &[u8]) -> Result<(), DeviceError> {
        let offset_bytes = self.locate(index, from.len())?;
        // SAFETY: a copier's caller has nothing in flight that reads or writes these bytes, and submits what will read them
        // after it has seen this copy's completion. The consequence of breaking this is as above.
        unsafe { self.mapping.write(offset_bytes, from) }
    }

    /// Where part `index` begins.
    fn locate(&self, index: u32, length: usize) -> Result<u64, DeviceError> {
        assert_eq!(length, self.part_bytes(), "copies are of whole pages and rows");
        let offset_bytes = u64::from(index).saturating_mul(self.stride_bytes);
        if index < self.count {
            Ok(offset_bytes)
        } else {
            let address = self.mapping.address().saturating_add(offset_bytes);
            Err(DeviceError::Unmapped { address, bytes: self.stride_bytes })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Away from the addresses that cores and other tests use.
    const BASE: u64 = 0x1900_0000_0000;

    fn strided(address: u64, stride_bytes: u64, count: u32) -> Strided {
        Strided { mapping: Arc::new(Mapping::zeroed(address, 8192).unwrap()), stride_bytes, count }
    }

    #[test]
    fn parts_are_copied_whole_and_apart() {
        let mut copier = HostCopier { pages: strided(BASE, 3000, 2), rows: strided(BASE + 8192, 16, 3) };
        assert_eq!((copier.page_bytes(), copier.row_bytes()), (3000, 16));
        copier.write_page(PageId(0), &[1; 3000]).unwrap();
        copier.write_page(PageId(1), &[2; 3000]).unwrap();
        copier.write_row(RowId(2), &[3; 16]).unwrap();
        let (mut page, mut row) = ([0; 3000], [9; 16]);
        copier.read_page(PageId(0), &mut page).unwrap();
        assert_eq!(page, [1; 3000]);
        copier.read_page(PageId(1), &mut page).unwrap();
        assert_eq!(page, [2; 3000]);
        copier.read_row(RowId(1), &mut row).unwrap();
        assert_eq!(row, [0; 16]);
        copier.read_row(RowId(2), &mut row).unwrap();
        assert_eq!(row, [3; 16]);
    }

    #[test]
    fn a_part_that_is_not_backed_is_refused_even_where_the_mapping_goes_on() {
        let mut copier =
            HostCopier { pages: strided(BASE + 0x1_0000, 1000, 2), rows: strided(BASE + 0x2_0000, 16, 1) };
        let outside = DeviceError::Unmapped { address: BASE + 0x1_0000 + 2000, bytes: 1000 };
        assert_eq!(copier.write_page(PageId(2), &[1; 1000]), Err(outside));
        assert!(copier.read_row(RowId(u32::MAX), &mut [0; 16]).is_err());
    }
}
