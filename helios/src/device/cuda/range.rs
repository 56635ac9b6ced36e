//! Device memory at fixed addresses: a range of addresses is reserved first and backed from its start on later.
//!
//! Reserving takes no memory, so what a core reserves for rows and pages may be larger than the device. Backing only grows,
//! is zero-filled, and stays where it is: whatever holds an address in it holds it for the range's life.
#![expect(unsafe_code, reason = "the driver's interface is C")]

use std::sync::Arc;

use super::context::Context;
use super::driver::{check, report, sys};
use super::stream::Stream;
use crate::device::DeviceError;

/// What regions are aligned to; no device that cores are prepared for has a larger granule.
pub const ALIGNMENT_BYTES: u64 = 2 << 20;

/// Smaller wishes are not granted: the driver places small reservations where it likes.
const RESERVATION_BYTES_MIN: u64 = 1 << 30;

/// Reserved device addresses, which nothing else of the process gets. The context is bound wherever this is used.
#[derive(Debug)]
pub struct Reservation {
    context: Arc<Context>,
    address: u64,
    bytes: u64,
}

/// A part of a reservation whose first bytes are backed. The context is bound wherever this is used.
#[derive(Debug)]
pub struct Range {
    reservation: Arc<Reservation>,
    address: u64,
    bytes: u64,
    /// Length of each piece of backing, from the start on.
    pieces: Vec<u64>,
}

impl Reservation {
    /// Reserves at least `bytes` at exactly `address`.
    pub fn new(context: &Arc<Context>, address: u64, bytes: u64) -> Result<Arc<Self>, DeviceError> {
        let alignment_bytes = granule(context)?.max(ALIGNMENT_BYTES);
        if alignment_bytes > ALIGNMENT_BYTES || bytes == 0 || !address.is_multiple_of(ALIGNMENT_BYTES) {
            return Err(DeviceError::Misaligned { address, bytes, alignment_bytes });
        }
        let bytes = bytes.max(RESERVATION_BYTES_MIN).next_multiple_of(ALIGNMENT_BYTES);
        let taken = DeviceError::AddressTaken { address, bytes };
        let length = usize::try_from(bytes).map_err(|_| taken.clone())?;
        let mut reserved = 0;
        // SAFETY: reserving addresses touches no memory; the driver takes the address for a wish.
        check("cuMemAddressReserve", unsafe {
            sys::cuMemAddressReserve(&raw mut reserved, length, ALIGNMENT_BYTES as usize, address, 0)
        })?;
        let reservation = Self { context: Arc::clone(context), address: reserved, bytes };
        // Where the wish was not granted, dropping this gives back what was granted instead.
        if reserved == address { Ok(Arc::new(reservation)) } else { Err(taken) }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        report(self.context.bind());
        // SAFETY: the range was reserved with this length, and nothing in it is mapped any more.
        report(check("cuMemAddressFree", unsafe {
            sys::cuMemAddressFree(self.address, self.bytes as usize)
        }));
    }
}

impl Range {
    /// The part of `reservation` that begins at `address` and has `bytes`, rounded up to whole granules. Parts do not overlap.
    pub fn new(reservation: &Arc<Reservation>, address: u64, bytes: u64) -> Self {
        let bytes = bytes.next_multiple_of(ALIGNMENT_BYTES);
        assert!(
            address >= reservation.address && address + bytes <= reservation.address + reservation.bytes,
            "a part lies in its reservation"
        );
        Self { reservation: Arc::clone(reservation), address, bytes, pieces: Vec::new() }
    }

    /// The address of the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes that may be backed.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes from the start on that are backed.
    pub fn backed_bytes(&self) -> u64 {
        self.pieces.iter().sum()
    }

    /// Backs at least the first `bytes`; what is new is zero-filled. Waits for the device.
    pub fn back(&mut self, bytes: u64) -> Result<(), DeviceError> {
        let backed = self.backed_bytes();
        if bytes > self.bytes {
            return Err(DeviceError::Unmapped { address: self.address, bytes });
        }
        let Some(missing) = bytes.checked_sub(backed).filter(|&missing| missing > 0) else { return Ok(()) };
        let missing = missing.next_multiple_of(ALIGNMENT_BYTES);
        let start = self.address + backed;
        let length = usize::try_from(missing).expect("a part of a reserved range fits the address space");
        let context = &self.reservation.context;
        map(context, start, length)?;
        self.pieces.push(missing);
        allow(context, start, length)?;
        // A stream of its own: the default one may not be used while another captures.
        let stream = Stream::new(context)?;
        // SAFETY: the bytes were mapped just now, and nothing refers to them yet.
        check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(start, 0, length, stream.raw()) })?;
        stream.synchronize()
    }

    /// The address of `bytes` bytes at `offset_bytes`, if all of them are backed.
    pub fn locate(&self, offset_bytes: u64, bytes: u64) -> Result<u64, DeviceError> {
        let address = self.address.saturating_add(offset_bytes);
        if offset_bytes.saturating_add(bytes) > self.backed_bytes() {
            return Err(DeviceError::Unmapped { address, bytes });
        }
        Ok(address)
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        report(self.reservation.context.bind());
        let mut start = self.address;
        for &piece in &self.pieces {
            // SAFETY: the piece was mapped by this range, whose owner has ended everything that uses it.
            report(check("cuMemUnmap", unsafe { sys::cuMemUnmap(start, piece as usize) }));
            start += piece;
        }
    }
}

fn properties(context: &Context) -> sys::CUmemAllocationProp {
    sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
        location: location(context),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}

fn location(context: &Context) -> sys::CUmemLocation {
    sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: context.device() }
}

fn granule(context: &Context) -> Result<u64, DeviceError> {
    let mut bytes = 0;
    let least = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    let properties = properties(context);
    // SAFETY: the driver reads the properties and writes one integer.
    let answer = unsafe { sys::cuMemGetAllocationGranularity(&raw mut bytes, &raw const properties, least) };
    check("cuMemGetAllocationGranularity", answer)?;
    Ok(bytes as u64)
}

/// Maps new memory at `start`, which lies in a reserved range and is not mapped.
fn map(context: &Context, start: u64, length: usize) -> Result<(), DeviceError> {
    let mut memory = 0;
    let properties = properties(context);
    // SAFETY: the driver reads the properties and writes one handle.
    check("cuMemCreate", unsafe { sys::cuMemCreate(&raw mut memory, length, &raw const properties, 0) })?;
    // SAFETY: the addresses are reserved and free, and the handle has exactly this length.
    let mapped = check("cuMemMap", unsafe { sys::cuMemMap(start, length, 0, memory, 0) });
    // SAFETY: a mapping keeps its memory; without one this gives it back.
    check("cuMemRelease", unsafe { sys::cuMemRelease(memory) })?;
    mapped
}

fn allow(context: &Context, start: u64, length: usize) -> Result<(), DeviceError> {
    let access = sys::CUmemAccessDesc {
        location: location(context),
        flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    // SAFETY: the range is mapped; the driver reads one descriptor.
    check("cuMemSetAccess", unsafe { sys::cuMemSetAccess(start, length, &raw const access, 1) })
}
