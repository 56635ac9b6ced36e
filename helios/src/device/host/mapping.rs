//! Memory at fixed addresses of this process.
//!
//! A [`Mapping`] owns its address range: nothing else of the process was there before it, and dropping it gives the range
//! back. Memory is never moved and never grows. What is written there is raw bytes that kernels share, so the only ways
//! in and out are copies.
#![expect(unsafe_code, reason = "mapping memory and copying to and from addresses that kernels share")]

use std::ffi::c_void;
use std::fs::File;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

use crate::device::DeviceError;

/// The unit that addresses, lengths and file offsets are multiples of.
pub const PAGE_BYTES: u64 = 4096;

/// An address range that this process owns.
///
/// Other threads (kernels) may read and write the memory at any time; whoever copies orders the copies against them.
#[derive(Debug)]
pub struct Mapping {
    address: NonNull<c_void>,
    reserved_bytes: usize,
    /// Bytes from the start that may be touched.
    backed_bytes: usize,
    writable: bool,
}

// SAFETY: the range belongs to the mapping, not to a thread, and every access goes through raw copies.
unsafe impl Send for Mapping {}
// SAFETY: `&Mapping` only reads the fields; copies are unsafe functions or take `&mut`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `bytes` of zeros at `address`, backed on first touch.
    pub fn zeroed(address: u64, bytes: u64) -> Result<Self, DeviceError> {
        Self::anonymous(address, bytes, bytes)
    }

    /// Reserves `reserved_bytes` at `address` and backs the first `backed_bytes` with zeros; touching the rest is a fault.
    pub fn elastic(address: u64, reserved_bytes: u64, backed_bytes: u64) -> Result<Self, DeviceError> {
        Self::anonymous(address, reserved_bytes, backed_bytes)
    }

    /// Maps `bytes` of `file` from `offset_bytes` on at `address`: read-only and shared with the page cache.
    pub fn file(address: u64, bytes: u64, file: &File, offset_bytes: u64) -> Result<Self, DeviceError> {
        let (pointer, length) = range(address, bytes)?;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: FIXED_NOREPLACE fails rather than replace memory that anything else uses.
        let mapped = unsafe { rustix::mm::mmap(pointer, length, ProtFlags::READ, flags, file, offset_bytes) };
        Self::claim(mapped, address, length, length, false)
    }

    fn anonymous(address: u64, reserved_bytes: u64, backed_bytes: u64) -> Result<Self, DeviceError> {
        let (pointer, reserved) = range(address, reserved_bytes)?;
        let backed =
            usize::try_from(backed_bytes.min(reserved_bytes)).map_err(|_| too_large(backed_bytes))?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: FIXED_NOREPLACE fails rather than replace memory that anything else uses.
        let mapped = unsafe { rustix::mm::mmap_anonymous(pointer, reserved, ProtFlags::empty(), flags) };
        let mapping = Self::claim(mapped, address, reserved, backed, true)?;
        if backed > 0 {
            let access = MprotectFlags::READ | MprotectFlags::WRITE;
            // SAFETY: the range is the start of the mapping that was made just now and that nothing refers to yet.
            unsafe { rustix::mm::mprotect(pointer, backed, access) }
                .map_err(|errno| system_error(format!("backing {backed} bytes at {address:#x}"), errno))?;
        }
        Ok(mapping)
    }

    fn claim(
        mapped: rustix::io::Result<*mut c_void>,
        address: u64,
        reserved_bytes: usize,
        backed_bytes: usize,
        writable: bool,
    ) -> Result<Self, DeviceError> {
        let taken = DeviceError::AddressTaken { address, bytes: reserved_bytes as u64 };
        let pointer = match mapped {
            Err(rustix::io::Errno::EXIST) => return Err(taken),
            Err(errno) => {
                return Err(system_error(format!("mapping {reserved_bytes} bytes at {address:#x}"), errno));
            }
            Ok(pointer) => pointer,
        };
        let mapping = Self {
            address: NonNull::new(pointer).ok_or(taken.clone())?,
            reserved_bytes,
            backed_bytes,
            writable,
        };
        // A kernel older than FIXED_NOREPLACE takes the address for a hint; dropping the mapping gives the range back.
        if mapping.address() == address { Ok(mapping) } else { Err(taken) }
    }

    /// The address of the first byte.
    pub fn address(&self) -> u64 {
        self.address.as_ptr() as u64
    }

    /// Bytes that may be touched.
    pub fn backed_bytes(&self) -> u64 {
        self.backed_bytes as u64
    }

    /// Whether kernels may write here.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Reads `bytes` of a file from `offset_bytes` on into memory, so that touching them later neither waits nor faults.
    pub fn populate(&self, offset_bytes: u64, bytes: u64) -> Result<(), DeviceError> {
        let length = usize::try_from(bytes).map_err(|_| too_large(bytes))?;
        let start = self.locate(offset_bytes, length, true)?;
        // SAFETY: populating changes no memory, and `locate` found the range within this mapping.
        unsafe { rustix::mm::madvise(start.cast(), length, Advice::LinuxPopulateRead) }
            .map_err(|errno| system_error(format!("reading {bytes} bytes ahead"), errno))
    }

    /// Copies `bytes` to `offset_bytes`, which must lie in the backed, writable part.
    ///
    /// # Safety
    /// No kernel may be reading or writing those bytes.
    pub unsafe fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let target = self.locate(offset_bytes, bytes.len(), self.writable)?;
        // SAFETY: `locate` found the whole range within memory that is backed and writable, which no Rust object occupies.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
        Ok(())
    }

    /// Copies `into.len()` bytes from `offset_bytes`, which must lie in the backed part.
    ///
    /// # Safety
    /// No kernel may be writing those bytes.
    pub unsafe fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let source = self.locate(offset_bytes, into.len(), true)?;
        // SAFETY: `locate` found the whole range within memory that is backed, which no Rust object occupies.
        unsafe { std::ptr::copy_nonoverlapping(source, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    fn locate(&self, offset_bytes: u64, length: usize, accessible: bool) -> Result<*mut u8, DeviceError> {
        let end_bytes = offset_bytes.saturating_add(length as u64);
        if !accessible || end_bytes > self.backed_bytes() {
            return Err(DeviceError::Unmapped {
                address: self.address().saturating_add(offset_bytes),
                bytes: length as u64,
            });
        }
        let offset = usize::try_from(offset_bytes).expect("an offset below a usize fits one");
        Ok(self.address.as_ptr().cast::<u8>().wrapping_add(offset))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range belongs to this mapping, and its owner has stopped every kernel that uses it.
        let unmapped = unsafe { rustix::mm::munmap(self.address.as_ptr(), self.reserved_bytes) };
        if let Err(errno) = unmapped {
            tracing::error!(%errno, address = self.address(), "a range could not be given back");
        }
    }
}

fn range(address: u64, bytes: u64) -> Result<(*mut c_void, usize), DeviceError> {
    if address == 0 || bytes == 0 || !address.is_multiple_of(PAGE_BYTES) || !bytes.is_multiple_of(PAGE_BYTES)
    {
        return Err(DeviceError::Misaligned { address, bytes, alignment_bytes: PAGE_BYTES });
    }
    let start = usize::try_from(address).map_err(|_| too_large(address))?;
    let length = usize::try_from(bytes).map_err(|_| too_large(bytes))?;
    Ok((std::ptr::without_provenance_mut(start), length))
}

fn too_large(bytes: u64) -> DeviceError {
    system_error(format!("addressing {bytes:#x}"), rustix::io::Errno::OVERFLOW)
}

/// An error of the operating system, with what was asked of it.
pub(super) fn system_error(operation: String, errno: rustix::io::Errno) -> DeviceError {
    DeviceError::Driver {
        operation,
        code: i64::from(errno.raw_os_error()),
        name: format!("{errno:?}"),
        description: std::io::Error::from(errno).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Away from the addresses that cores use, so that tests of both can run in one process.
    const BASE: u64 = 0x1800_0000_0000;

    #[test]
    fn zeroed_memory_holds_what_is_written() {
        let mapping = Mapping::zeroed(BASE, 8192).unwrap();
        assert_eq!(mapping.address(), BASE);
        let mut read = [1u8; 4];
        // SAFETY: no kernel runs in this test.
        unsafe { mapping.read(4094, &mut read) }.unwrap();
        assert_eq!(read, [0; 4]);
        // SAFETY: as above.
        unsafe { mapping.write(4094, &[1, 2, 3, 4]) }.unwrap();
        // SAFETY: as above.
        unsafe { mapping.read(4094, &mut read) }.unwrap();
        assert_eq!(read, [1, 2, 3, 4]);
        // SAFETY: as above.
        let outside = unsafe { mapping.write(8190, &[0; 4]) };
        assert_eq!(outside, Err(DeviceError::Unmapped { address: BASE + 8190, bytes: 4 }));
    }

    #[test]
    fn a_taken_range_is_refused_and_a_dropped_one_is_free() {
        let address = BASE + 0x1000_0000;
        let first = Mapping::zeroed(address, 8192).unwrap();
        let second = Mapping::zeroed(address + 4096, 8192);
        assert_eq!(second.unwrap_err(), DeviceError::AddressTaken { address: address + 4096, bytes: 8192 });
        drop(first);
        Mapping::zeroed(address + 4096, 8192).unwrap();
    }

    #[test]
    fn elastic_memory_ends_where_its_backing_ends() {
        let mapping = Mapping::elastic(BASE + 0x2000_0000, 1 << 40, 4096).unwrap();
        // SAFETY: no kernel runs in this test.
        unsafe { mapping.write(0, &[7; 4096]) }.unwrap();
        // SAFETY: as above.
        let beyond = unsafe { mapping.write(4096, &[7]) };
        assert!(matches!(beyond, Err(DeviceError::Unmapped { .. })));
    }

    #[test]
    fn a_file_is_mapped_from_its_offset_and_cannot_be_written() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 4096]).unwrap();
        file.write_all(&[2; 4096]).unwrap();
        let mapping = Mapping::file(BASE + 0x3000_0000, 4096, &file, 4096).unwrap();
        mapping.populate(0, 4096).unwrap();
        let mut read = [0u8; 2];
        // SAFETY: no kernel runs in this test.
        unsafe { mapping.read(4094, &mut read) }.unwrap();
        assert_eq!(read, [2, 2]);
        // SAFETY: as above.
        assert!(unsafe { mapping.write(0, &[1]) }.is_err());
    }

    #[test]
    fn misaligned_and_empty_ranges_are_refused() {
        for (address, bytes) in [(BASE + 1, 4096), (BASE, 0), (BASE, 100), (0, 4096)] {
            assert!(matches!(Mapping::zeroed(address, bytes), Err(DeviceError::Misaligned { .. })));
        }
    }
}
