//! The device and its primary context, which a process has once and shares with whatever else uses CUDA in it.
#![expect(unsafe_code, reason = "the driver's interface is C")]

use std::ffi::{CStr, c_int};
use std::sync::Arc;

use super::driver::{check, load, report, sys};
use crate::device::DeviceError;

/// The process's only device: the first that the driver shows, which `CUDA_VISIBLE_DEVICES` decides.
const ORDINAL: c_int = 0;

/// A retained primary context. May be used from any thread, after [`Context::bind`] on it.
#[derive(Debug)]
pub struct Context {
    device: sys::CUdevice,
    context: sys::CUcontext,
    properties: Properties,
}

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    pub name: String,
    pub compute_major: u32,
    pub compute_minor: u32,
    pub multiprocessors: u32,
    /// The device's memory is the machine's.
    pub is_integrated: bool,
    /// 1000 x major + 10 x minor.
    pub driver_version: i32,
}

// SAFETY: the driver's contexts may be used from any thread; what is here never changes.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Loads the driver and retains the context. Makes it current on this thread.
    pub fn open() -> Result<Arc<Self>, DeviceError> {
        let driver_version = load()?;
        let mut device = 0;
        // SAFETY: the driver writes one handle.
        check("cuDeviceGet", unsafe { sys::cuDeviceGet(&raw mut device, ORDINAL) }).map_err(|error| {
            DeviceError::NoCuda { reason: format!("its CUDA driver shows no device ({error})") }
        })?;
        let properties = Properties::read(device, driver_version)?;
        let mut context = std::ptr::null_mut();
        // SAFETY: the driver writes one handle, which is released in `drop`.
        check("cuDevicePrimaryCtxRetain", unsafe {
            sys::cuDevicePrimaryCtxRetain(&raw mut context, device)
        })?;
        let context = Arc::new(Self { device, context, properties });
        context.bind()?;
        Ok(context)
    }

    /// What the device is.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Makes the context this thread's current one.
    pub fn bind(&self) -> Result<(), DeviceError> {
        // SAFETY: the context is retained for as long as `self` is here.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.context) })
    }

    /// Free and total bytes of the device. The context is bound.
    pub fn memory(&self) -> Result<(u64, u64), DeviceError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the driver writes two integers.
        check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) })?;
        Ok((free as u64, total as u64))
    }

    pub(super) fn device(&self) -> sys::CUdevice {
        self.device
    }

    pub(super) fn raw(&self) -> sys::CUcontext {
        self.context
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once, and everything made in it is gone: all of it holds an `Arc` of this.
        let released = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
        report(check("cuDevicePrimaryCtxRelease", released));
    }
}

impl Properties {
    fn read(device: sys::CUdevice, driver_version: i32) -> Result<Self, DeviceError> {
        use sys::CUdevice_attribute as Attribute;
        let attribute = |attribute| {
            let mut value = 0;
            // SAFETY: the driver writes one integer.
            let answer = unsafe { sys::cuDeviceGetAttribute(&raw mut value, attribute, device) };
            check("cuDeviceGetAttribute", answer)?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        Ok(Self {
            name: name(device)?,
            compute_major: attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            compute_minor: attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            is_integrated: attribute(Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED)? != 0,
            driver_version,
        })
    }
}

fn name(device: sys::CUdevice) -> Result<String, DeviceError> {
    let mut name = [0; 128];
    // SAFETY: the driver writes no more than the length that it is given, a zero included.
    let answer = unsafe { sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int, device) };
    check("cuDeviceGetName", answer)?;
    // SAFETY: the driver ended the name with a zero.
    Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
}
