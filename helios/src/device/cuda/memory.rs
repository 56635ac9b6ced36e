//! A core's regions on the device, and where its buffers lie in them.

use std::sync::Arc;

use super::context::Context;
use super::range::{ALIGNMENT_BYTES, Range, Reservation};
use crate::core::contract::{BoundContract, RegionBacking};
use crate::device::{Backing, BufferId, DeviceError};

/// Every region's range, by index. Only what is backed can be located.
pub(super) struct Memory {
    pub ranges: Vec<Range>,
    pub context: Arc<Context>,
    buffers: Vec<View>,
    /// Whether a region is storage, which nothing writes once it is in place.
    is_storage: Vec<bool>,
}

#[derive(Clone, Copy)]
struct View {
    address: u64,
    bytes: u64,
}

impl Memory {
    /// Reserves every region and backs all but the elastic ones.
    pub fn reserve(context: &Arc<Context>, contract: &BoundContract) -> Result<Self, DeviceError> {
        let regions = &contract.regions;
        let start = regions.iter().map(|region| region.address).min().expect("a bound core has regions");
        let end = regions.iter().map(|region| region.address + region.bytes).max().expect("as above");
        // One reservation for all, what lies between them included: the driver grants wishes for large ones only.
        let reservation = Reservation::new(context, start, end.next_multiple_of(ALIGNMENT_BYTES) - start)?;
        let mut ranges = Vec::with_capacity(regions.len());
        for region in regions {
            let mut range = Range::new(&reservation, region.address, region.bytes);
            if region.backing != RegionBacking::Elastic {
                range.back(region.bytes)?;
            }
            ranges.push(range);
        }
        let view =
            |buffer: &crate::core::contract::Buffer| View { address: buffer.address, bytes: buffer.bytes };
        Ok(Self {
            ranges,
            context: Arc::clone(context),
            buffers: contract.buffers.iter().map(view).collect(),
            is_storage: contract
                .regions
                .iter()
                .map(|region| region.backing == RegionBacking::Storage)
                .collect(),
        })
    }

    /// Backs rows and pages.
    pub fn back(&mut self, contract: &BoundContract, backing: Backing) -> Result<(), DeviceError> {
        let state = &contract.state;
        for (region, count, stride_bytes) in [
            (state.rows_region, backing.rows, state.row_stride_bytes),
            (state.pages_region, backing.pages, state.page_stride_bytes),
        ] {
            self.ranges[region as usize].back(u64::from(count).saturating_mul(stride_bytes))?;
        }
        Ok(())
    }

    /// The address of `length` bytes at `offset_bytes` of a buffer.
    pub fn locate_in_buffer(
        &self,
        buffer: BufferId,
        offset_bytes: u64,
        length: usize,
    ) -> Result<u64, DeviceError> {
        let end_bytes = offset_bytes.saturating_add(length as u64);
        let View { address, bytes: buffer_bytes } = self.buffers[buffer.0 as usize];
        if end_bytes > buffer_bytes {
            return Err(DeviceError::OutOfBounds { buffer: buffer.0, offset_bytes, end_bytes, buffer_bytes });
        }
        Ok(address + offset_bytes)
    }

    /// The address of `length` bytes at `offset_bytes` of a region that is no storage.
    pub fn locate_writable(
        &self,
        region: usize,
        offset_bytes: u64,
        length: usize,
    ) -> Result<u64, DeviceError> {
        let address = self.ranges[region].locate(offset_bytes, length as u64)?;
        if self.is_storage[region] {
            return Err(DeviceError::Unmapped { address, bytes: length as u64 });
        }
        Ok(address)
    }
}
