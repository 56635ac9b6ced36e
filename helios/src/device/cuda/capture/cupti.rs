//! The few functions of CUPTI, NVIDIA's profiling interface, that tell of modules as they are loaded.
//!
//! The library is loaded at run time; no crate declares it without also linking to it or bringing forty thousand lines.
#![expect(unsafe_code, reason = "CUPTI's interface is C")]

use std::ffi::{CStr, c_char, c_void};
use std::path::Path;

use libloading::os::unix::Library;

use super::CaptureError;

/// Domains and callbacks, as `cupti_callbacks.h` and `cupti_driver_cbid.h` number them.
pub const DOMAIN_DRIVER: u32 = 1;
pub const DOMAIN_RESOURCE: u32 = 3;
pub const RESOURCE_MODULE_LOADED: u32 = 6;
pub const DRIVER_MODULE_LOAD: u32 = 18;
pub const DRIVER_MODULE_LOAD_DATA: u32 = 19;
pub const DRIVER_MODULE_LOAD_DATA_EX: u32 = 20;
pub const DRIVER_MODULE_LOAD_FAT_BINARY: u32 = 21;
pub const DRIVER_LIBRARY_GET_MODULE: u32 = 682;

const SITE_ENTER: u32 = 0;
/// Tried in this order where no path is given.
const NAMES: [&str; 3] = ["libcupti.so.13", "libcupti.so.12", "libcupti.so"];

pub type Callback = unsafe extern "C" fn(user: *mut c_void, domain: u32, callback: u32, data: *const c_void);

/// What a callback of the driver's domain is given.
#[repr(C)]
pub struct CallbackData {
    site: u32,
    name: *const c_char,
    pub parameters: *const c_void,
    pub answer: *const u32,
    // More follows, which nothing here reads.
}

/// What a callback of the resource domain is given.
#[repr(C)]
pub struct ResourceData {
    context: *mut c_void,
    handle: *mut c_void,
    pub descriptor: *const c_void,
}

/// The descriptor of a loaded module.
#[repr(C)]
pub struct ModuleData {
    id: u32,
    pub image_bytes: usize,
    pub image: *const u8,
}

impl CallbackData {
    /// Whether the driver's function is about to begin; otherwise it is about to return.
    pub fn is_entering(&self) -> bool {
        self.site == SITE_ENTER
    }
}

/// A subscription, of which a process has one at a time. It is ended when dropped.
pub struct Subscription {
    library: Library,
    subscriber: *mut c_void,
}

// SAFETY: CUPTI's functions may be called from any thread.
unsafe impl Send for Subscription {}

impl Subscription {
    /// Loads CUPTI from the first of `paths` that is there, or by its name, and subscribes.
    ///
    /// # Safety
    /// `callback` may be called from any thread from now on, until the subscription is dropped.
    pub unsafe fn new(paths: &[impl AsRef<Path>], callback: Callback) -> Result<Self, CaptureError> {
        type Subscribe = unsafe extern "C" fn(*mut *mut c_void, Callback, *mut c_void) -> u32;
        let library = open(paths)?;
        let mut subscriber = std::ptr::null_mut();
        // SAFETY: the symbol has this type in every release of CUPTI.
        let subscribe = unsafe { symbol::<Subscribe>(&library, "cuptiSubscribe") }?;
        // SAFETY: CUPTI writes one handle; the callback is the caller's promise.
        let answer = unsafe { subscribe(&raw mut subscriber, callback, std::ptr::null_mut()) };
        let subscription = Self { library, subscriber };
        match subscription.check("cuptiSubscribe", answer) {
            Ok(()) => Ok(subscription),
            Err(error) => {
                // There is nothing to end.
                std::mem::forget(subscription);
                Err(error)
            }
        }
    }

    /// Has a callback called.
    pub fn enable(&self, domain: u32, callback: u32) -> Result<(), CaptureError> {
        type Enable = unsafe extern "C" fn(u32, *mut c_void, u32, u32) -> u32;
        // SAFETY: the symbol has this type in every release of CUPTI.
        let enable = unsafe { symbol::<Enable>(&self.library, "cuptiEnableCallback") }?;
        // SAFETY: the subscriber is ours.
        let answer = unsafe { enable(1, self.subscriber, domain, callback) };
        self.check("cuptiEnableCallback", answer)
    }

    fn check(&self, operation: &str, answer: u32) -> Result<(), CaptureError> {
        type ResultString = unsafe extern "C" fn(u32, *mut *const c_char) -> u32;
        if answer == 0 {
            return Ok(());
        }
        // SAFETY: the symbol has this type in every release of CUPTI.
        let text = unsafe { symbol::<ResultString>(&self.library, "cuptiGetResultString") }?;
        let mut name = std::ptr::null();
        // SAFETY: CUPTI writes a pointer to a constant, or nothing.
        unsafe { text(answer, &raw mut name) };
        let name = if name.is_null() {
            "unknown".to_owned()
        } else {
            // SAFETY: CUPTI's texts are constant C strings.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        };
        let reason = format!("{operation} failed with {name} ({answer}); end whatever profiles this process");
        Err(CaptureError::Recorder { reason })
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        type Unsubscribe = unsafe extern "C" fn(*mut c_void) -> u32;
        // SAFETY: the symbol has this type in every release of CUPTI.
        let Ok(unsubscribe) = (unsafe { symbol::<Unsubscribe>(&self.library, "cuptiUnsubscribe") }) else {
            return;
        };
        // SAFETY: the subscriber is ours, and this is its end.
        let answer = unsafe { unsubscribe(self.subscriber) };
        if let Err(error) = self.check("cuptiUnsubscribe", answer) {
            tracing::error!(%error, "the recorder could not be ended");
        }
    }
}

fn open(paths: &[impl AsRef<Path>]) -> Result<Library, CaptureError> {
    let mut refused = String::new();
    let present = paths.iter().map(|path| path.as_ref().to_owned()).filter(|path| path.exists());
    for candidate in present.chain(NAMES.map(Into::into)) {
        // SAFETY: CUPTI's initializers touch nothing of ours.
        match unsafe { Library::new(&candidate) } {
            Ok(library) => return Ok(library),
            Err(error) => refused = error.to_string(),
        }
    }
    Err(CaptureError::Recorder {
        reason: format!(
            "libcupti.so cannot be loaded ({refused}); install CUDA's CUPTI, which comes with PyTorch"
        ),
    })
}

/// # Safety
/// `F` is the function pointer type of `name`.
unsafe fn symbol<F: Copy>(library: &Library, name: &str) -> Result<F, CaptureError> {
    // SAFETY: the caller's promise.
    let found = unsafe { library.get::<F>(name) };
    found
        .map(|symbol| *symbol)
        .map_err(|error| CaptureError::Recorder { reason: format!("CUPTI has no {name} ({error})") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_cupti_is_told_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let broken = folder.path().join("libcupti.so.13");
        std::fs::write(&broken, "no library").unwrap();
        if let Err(error) = open(&[broken]) {
            assert!(
                error.to_string().starts_with("modules cannot be recorded: libcupti.so cannot be loaded")
            );
        }
    }
}
