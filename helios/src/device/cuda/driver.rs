//! The CUDA driver's functions, loaded when they are first needed, and its errors.
//!
//! Nothing of Helios is linked to the driver: a machine without one gets [`DeviceError::NoCuda`] from [`load`], and nothing
//! else here may be called before `load` has succeeded once in the process.
#![expect(unsafe_code, reason = "the driver's interface is C")]

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

pub use cudarc::driver::sys;

use crate::device::DeviceError;

/// What cores are prepared with; older drivers can neither load their modules nor build their graphs.
const DRIVER_VERSION_MIN: i32 = 13_000;

/// Loads and initializes the driver, once a process. Returns its version, as 1000 x major + 10 x minor.
pub fn load() -> Result<i32, DeviceError> {
    static LOADED: OnceLock<Result<i32, DeviceError>> = OnceLock::new();
    LOADED.get_or_init(initialize).clone()
}

/// Makes an error of a driver's answer, with what was asked of it.
pub fn check(operation: &str, answer: sys::CUresult) -> Result<(), DeviceError> {
    if answer == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let text = |ask: unsafe fn(sys::CUresult, *mut *const c_char) -> sys::CUresult| {
        let mut text = std::ptr::null();
        // SAFETY: an answer came from the driver, so it is loaded; it writes a pointer to a constant or a null pointer.
        unsafe { ask(answer, &raw mut text) };
        if text.is_null() {
            return "unknown".to_owned();
        }
        // SAFETY: the driver's texts are constant C strings.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    };
    Err(DeviceError::Driver {
        operation: operation.to_owned(),
        code: answer as i64,
        name: text(sys::cuGetErrorName),
        description: text(sys::cuGetErrorString),
    })
}

/// Reports an error where there is nobody to return it to: in the drop of what the driver holds for us.
pub(super) fn report(outcome: Result<(), DeviceError>) {
    if let Err(error) = outcome {
        tracing::error!(%error, "a CUDA object could not be given back");
    }
}

fn initialize() -> Result<i32, DeviceError> {
    let missing = |reason: String| DeviceError::NoCuda { reason };
    // SAFETY: the driver's library has no initializers that touch anything of ours. It is opened to learn whether it is
    // there: the bindings, which open it again, panic where it is not.
    let library = unsafe { libloading::Library::new("libcuda.so.1") }
        .map_err(|_| missing("this machine has no CUDA driver: libcuda.so.1 cannot be loaded".to_owned()))?;
    // The bindings look for the development name first; whichever they find, the library stays loaded for the process.
    std::mem::forget(library);
    let mut version = 0;
    // SAFETY: the library is there, and the driver writes one integer.
    check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&raw mut version) })?;
    if version < DRIVER_VERSION_MIN {
        let (major, minor) = (version / 1000, version % 1000 / 10);
        return Err(missing(format!(
            "its CUDA driver is for CUDA {major}.{minor}, and 13.0 is the least; update the driver to 580 or newer"
        )));
    }
    // SAFETY: the one call that must come before all others; it takes no pointer.
    check("cuInit", unsafe { sys::cuInit(0) })
        .map_err(|error| missing(format!("its CUDA driver finds no device ({error})")))?;
    Ok(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_driver_is_told_so_and_without_a_panic() {
        match load() {
            Ok(version) => assert!(version >= DRIVER_VERSION_MIN),
            Err(DeviceError::NoCuda { reason }) => assert!(reason.contains("CUDA driver"), "{reason}"),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn success_is_no_error() {
        assert_eq!(check("cuInit", sys::CUresult::CUDA_SUCCESS), Ok(()));
    }
}
