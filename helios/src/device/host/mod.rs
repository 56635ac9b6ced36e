//! The host device: a core's memory and programs inside this process, on the machine's own processors.
//!
//! [`HostExecutor`] maps a core's regions at their addresses, loads its modules and runs its programs on one thread of its
//! own. Kernels are the core's machine code: they are trusted to touch nothing but the regions, as the digest that
//! covers them is trusted.

mod copier;
mod elf;
mod executor;
pub mod mapping;
mod module;
pub mod openmp;
pub mod processor;
mod program;
mod queue;
mod read_ahead;

pub use executor::{Backing, HostExecutor};

use super::DeviceError;

/// An error of the standard library, with what was asked of it.
fn io_error(operation: &str, error: &std::io::Error) -> DeviceError {
    DeviceError::Driver {
        operation: operation.to_owned(),
        code: i64::from(error.raw_os_error().unwrap_or(0)),
        name: format!("{:?}", error.kind()),
        description: error.to_string(),
    }
}
