//! Loading a core's machine code into this process.
//!
//! An image is loaded from memory and never unloaded: the OpenMP runtime that it brings keeps threads that may still run
//! its code when the core is dropped. A process loads one core in its life, so what stays is what would have stayed.
#![expect(unsafe_code, reason = "loading machine code and resolving its entry points")]

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;

use libloading::os::unix::Library;
use rustix::fs::MemfdFlags;

use super::elf;
use super::mapping::system_error;
use crate::device::DeviceError;

/// A kernel: it takes the addresses and integers of its call.
pub type Entry = unsafe extern "C" fn(arguments: *const *mut c_void);

const FLAGS: c_int = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE;

/// A loaded image.
pub struct Module {
    name: String,
    library: Library,
}

impl Module {
    /// Loads an image. Whatever it initializes runs now, so the image must be what its core's digest covers.
    pub fn load(name: &str, image: &[u8]) -> Result<Self, DeviceError> {
        let refused = |reason: String| DeviceError::Module { module: name.to_owned(), reason };
        elf::check(image).map_err(|reason| refused(reason.to_owned()))?;
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)
            .map_err(|errno| system_error("creating memory for a module".to_owned(), errno))?;
        let mut file = File::from(file);
        file.write_all(image).map_err(|error| refused(error.to_string()))?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        // SAFETY: the image's initializers are the core's own code, which is trusted as its kernels are.
        let library = unsafe { Library::open(Some(&path), FLAGS) }
            .map_err(|error| refused(format!("{error}; the core needs the libraries it was built with")))?;
        // The loader knows the image by this path for as long as it is loaded, which is forever: a descriptor that was
        // reused would name the old image.
        std::mem::forget(file);
        Ok(Self { name: name.to_owned(), library })
    }

    /// The entry point of `symbol`.
    pub fn entry(&self, symbol: &str) -> Result<Entry, DeviceError> {
        // SAFETY: the contract says that every kernel's symbol is an `Entry`; as code, it is trusted with its image.
        let found = unsafe { self.library.get::<Entry>(symbol) };
        found.map(|entry| *entry).map_err(|error| DeviceError::Module {
            module: self.name.clone(),
            reason: format!("it has no entry `{symbol}` ({error})"),
        })
    }
}
