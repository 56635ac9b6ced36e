//! Keeps the image of every module that the process loads, and knows which image a loaded module has.
//!
//! CUPTI tells of each image as the driver loads it, but not of the handle that the program gets. So the calls that load
//! modules are followed as well: an image that is loaded while such a call runs on the same thread is that of the module which
//! the call returns. Where the driver loads late, the image is what the call was given. Modules of the CUDA runtime's
//! libraries have no such call; their kernels are found by name, if only one image has it.
#![expect(unsafe_code, reason = "CUPTI hands out what the driver was called with")]

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::CaptureError;
use super::cupti::{self, CallbackData, ModuleData, ResourceData, Subscription};
use crate::device::cuda::module::{image_bytes, kernel_names};

/// Records while it is started. There is one recording a process, which all recorders share.
#[derive(Default)]
pub struct ModuleRecorder {
    subscription: Mutex<Option<Subscription>>,
}

static RECORDING: Mutex<Option<Recording>> = Mutex::new(None);

thread_local! {
    /// Images loaded since the driver's loading call began that this thread is in; `None` outside of one.
    static LOADING: RefCell<Option<Vec<usize>>> = const { RefCell::new(None) };
}

#[derive(Default)]
struct Recording {
    images: Vec<Image>,
    /// The image of each module that was returned by a call.
    modules: HashMap<usize, usize>,
}

struct Image {
    bytes: Arc<[u8]>,
    kernels: Vec<String>,
}

impl ModuleRecorder {
    /// Begins to record, with CUPTI from the first of `paths` that is there. Does nothing where it has begun.
    pub fn start(&self, paths: &[PathBuf]) -> Result<(), CaptureError> {
        let mut subscription = self.subscription.lock().unwrap_or_else(PoisonError::into_inner);
        if subscription.is_some() {
            return Ok(());
        }
        recording().get_or_insert_default();
        // SAFETY: the callback may be called from any thread: what it uses is behind locks or is a thread's own.
        let started = unsafe { Subscription::new(paths, callback) }?;
        started.enable(cupti::DOMAIN_RESOURCE, cupti::RESOURCE_MODULE_LOADED)?;
        for call in [
            cupti::DRIVER_MODULE_LOAD,
            cupti::DRIVER_MODULE_LOAD_DATA,
            cupti::DRIVER_MODULE_LOAD_DATA_EX,
            cupti::DRIVER_MODULE_LOAD_FAT_BINARY,
            cupti::DRIVER_LIBRARY_GET_MODULE,
        ] {
            started.enable(cupti::DOMAIN_DRIVER, call)?;
        }
        *subscription = Some(started);
        Ok(())
    }

    /// Ends recording; what was recorded stays.
    pub fn stop(&self) {
        drop(self.subscription.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// The distinct images so far, in the order in which they were loaded.
    pub fn images(&self) -> Vec<Arc<[u8]>> {
        let recording = recording();
        let images = recording.iter().flat_map(|recording| &recording.images);
        images.map(|image| Arc::clone(&image.bytes)).collect()
    }

    /// The image that has the code of `symbol` of the loaded module `module`, or why it is not known.
    pub fn find(&self, module: usize, symbol: &str) -> Result<usize, String> {
        recording().as_ref().ok_or("was loaded while nothing was recorded")?.find(module, symbol)
    }
}

impl Recording {
    fn find(&self, module: usize, symbol: &str) -> Result<usize, String> {
        let has = |index: &usize| self.images[*index].kernels.iter().any(|kernel| kernel == symbol);
        if let Some(&index) = self.modules.get(&module) {
            return Some(index).filter(has).ok_or_else(|| "is not in the image of its module".to_owned());
        }
        let named: Vec<usize> = (0..self.images.len()).filter(has).collect();
        match named[..] {
            [] => Err("is in no recorded image".to_owned()),
            [index] => Ok(index),
            _ => Err(format!("is in {} recorded images and not known to be of one", named.len())),
        }
    }

    /// The index of an image, which is added where it is new.
    fn add(&mut self, bytes: &[u8]) -> usize {
        let known = self.images.iter().position(|image| *image.bytes == *bytes);
        known.unwrap_or_else(|| {
            self.images.push(Image { bytes: bytes.into(), kernels: kernel_names(bytes) });
            self.images.len() - 1
        })
    }
}

fn recording() -> MutexGuard<'static, Option<Recording>> {
    RECORDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What CUPTI calls. Nothing in it may unwind, call CUDA or wait for a thread that does.
unsafe extern "C" fn callback(_user: *mut c_void, domain: u32, call: u32, data: *const c_void) {
    if domain == cupti::DOMAIN_RESOURCE {
        // SAFETY: data of this domain is this structure.
        let resource = unsafe { &*data.cast::<ResourceData>() };
        // SAFETY: only the callback of loaded modules is enabled, whose descriptor is this structure.
        let module = unsafe { &*resource.descriptor.cast::<ModuleData>() };
        // SAFETY: CUPTI gives the whole image for the time of the callback.
        loaded(unsafe { std::slice::from_raw_parts(module.image, module.image_bytes) });
    } else {
        // SAFETY: data of the driver's domain is this structure.
        let data = unsafe { &*data.cast::<CallbackData>() };
        if data.is_entering() {
            LOADING.set(Some(Vec::new()));
        } else {
            returned(call, data, LOADING.take().unwrap_or_default());
        }
    }
}

fn loaded(image: &[u8]) {
    let Some(index) = recording().as_mut().map(|recording| recording.add(image)) else { return };
    LOADING.with_borrow_mut(|loading| {
        if let Some(loading) = loading {
            loading.push(index);
        }
    });
}

/// A loading call returns: learns the image of the module that it gives.
fn returned(call: u32, data: &CallbackData, loaded: Vec<usize>) {
    // SAFETY: the answer of a call that returns is there.
    if unsafe { *data.answer } != 0 {
        return;
    }
    let parameters = data.parameters.cast::<*const c_void>();
    // SAFETY: the first parameter of each call that is followed is a pointer to the module that it returns.
    let place = unsafe { parameters.read() }.cast::<usize>();
    // SAFETY: the call succeeded, so the module is there.
    let module = unsafe { place.read() };
    // SAFETY: each of these calls has a second parameter, a pointer or a handle.
    let given = unsafe { parameters.wrapping_add(1).read() };
    let mut recording = recording();
    let Some(recording) = recording.as_mut() else { return };
    let image = match (loaded.as_slice(), call) {
        ([index], _) => Some(*index),
        ([], cupti::DRIVER_MODULE_LOAD_DATA | cupti::DRIVER_MODULE_LOAD_DATA_EX) => {
            // SAFETY: the driver took it for an image, so it is one, a header at least.
            let image = unsafe { image_bytes(given.cast()) };
            image.map(|image| recording.add(image))
        }
        ([], cupti::DRIVER_MODULE_LOAD) => {
            // SAFETY: the parameter is a path, which the driver has opened.
            let path = unsafe { CStr::from_ptr(given.cast::<c_char>()) };
            let image = std::fs::read(path.to_string_lossy().as_ref()).ok();
            image.filter(|image| image.starts_with(b"\x7fELF")).map(|image| recording.add(&image))
        }
        _ => None,
    };
    match image {
        Some(image) => recording.modules.insert(module, image),
        // The handle may have been another module's, which is gone.
        None => recording.modules.remove(&module),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(tag: u8, kernels: &[&str]) -> Image {
        Image { bytes: vec![tag].into(), kernels: kernels.iter().map(|&name| name.to_owned()).collect() }
    }

    #[test]
    fn a_kernel_is_its_modules_and_else_the_only_one_of_its_name() {
        let recording = Recording {
            images: vec![image(0, &["fused_0", "only"]), image(1, &["fused_0"])],
            modules: HashMap::from([(100, 1), (200, 0)]),
        };
        assert_eq!(recording.find(100, "fused_0"), Ok(1));
        assert_eq!(recording.find(200, "fused_0"), Ok(0));
        assert_eq!(recording.find(300, "only"), Ok(0));
        assert!(recording.find(100, "only").unwrap_err().contains("not in the image of its module"));
        assert!(recording.find(300, "fused_0").unwrap_err().contains("in 2 recorded images"));
        assert!(recording.find(300, "none").unwrap_err().contains("in no recorded image"));
    }

    #[test]
    fn equal_images_are_one() {
        let mut recording = Recording::default();
        assert_eq!([recording.add(b"a"), recording.add(b"b"), recording.add(b"a")], [0, 1, 0]);
        assert_eq!(recording.images.len(), 2);
    }
}
