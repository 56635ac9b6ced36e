//! Streams, events and pinned host memory.
//!
//! None of these is safe to use from two threads at a time, and each keeps its context. The context is bound wherever they
//! are used.
#![expect(unsafe_code, reason = "the driver's interface is C")]

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use super::context::Context;
use super::driver::{check, report, sys};
use crate::device::DeviceError;

/// Work in order, beside that of every other stream.
#[derive(Debug)]
pub struct Stream {
    context: Arc<Context>,
    stream: sys::CUstream,
}

// SAFETY: a stream may be used from any thread, one at a time, which `&mut` of its owners sees to.
unsafe impl Send for Stream {}

impl Stream {
    pub fn new(context: &Arc<Context>) -> Result<Self, DeviceError> {
        let mut stream = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the driver writes one handle, which is destroyed in `drop`.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut stream, flags) })?;
        Ok(Self { context: Arc::clone(context), stream })
    }

    pub(super) fn raw(&self) -> sys::CUstream {
        self.stream
    }

    /// Blocks until everything submitted is complete.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        // SAFETY: the stream is alive.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.stream) })
    }

    /// Copies pinned bytes to the device, behind what was submitted before.
    ///
    /// # Safety
    /// `from` stays pinned and unchanged until the copy is complete; the destination is backed, and nothing but work of this
    /// stream uses it meanwhile.
    pub unsafe fn upload(&self, destination: u64, from: &[u8]) -> Result<(), DeviceError> {
        let source = from.as_ptr().cast::<c_void>();
        // SAFETY: the caller's promises.
        let answer = unsafe { sys::cuMemcpyHtoDAsync_v2(destination, source, from.len(), self.stream) };
        check("cuMemcpyHtoDAsync", answer)
    }

    /// Copies device bytes into pinned memory, behind what was submitted before.
    ///
    /// # Safety
    /// `into` stays pinned and is not looked at until the copy is complete; the source is backed.
    pub unsafe fn download(&self, source: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let destination = into.as_mut_ptr().cast::<c_void>();
        // SAFETY: the caller's promises.
        let answer = unsafe { sys::cuMemcpyDtoHAsync_v2(destination, source, into.len(), self.stream) };
        check("cuMemcpyDtoHAsync", answer)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        report(self.context.bind());
        // SAFETY: the stream was made in `new`; its work, if any, is finished first.
        report(check("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(self.stream) }));
    }
}

/// A point in a stream's work.
#[derive(Debug)]
pub struct Event {
    context: Arc<Context>,
    event: sys::CUevent,
}

// SAFETY: an event may be used from any thread, one at a time, which its owners see to.
unsafe impl Send for Event {}

impl Event {
    /// An event that keeps no time.
    pub fn new(context: &Arc<Context>) -> Result<Self, DeviceError> {
        Self::with_flags(context, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    /// An event that keeps the time at which it is passed.
    pub fn timed(context: &Arc<Context>) -> Result<Self, DeviceError> {
        Self::with_flags(context, sys::CUevent_flags::CU_EVENT_DEFAULT)
    }

    fn with_flags(context: &Arc<Context>, flags: sys::CUevent_flags) -> Result<Self, DeviceError> {
        let mut event = std::ptr::null_mut();
        // SAFETY: the driver writes one handle, which is destroyed in `drop`.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut event, flags as u32) })?;
        Ok(Self { context: Arc::clone(context), event })
    }

    /// Moves the event behind what was submitted to `stream`.
    pub fn record(&self, stream: &Stream) -> Result<(), DeviceError> {
        // SAFETY: both are alive.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.event, stream.stream) })
    }

    /// Whether what the event was recorded behind is complete; a failure of that work is returned here.
    pub fn is_complete(&self) -> Result<bool, DeviceError> {
        // SAFETY: the event is alive.
        match unsafe { sys::cuEventQuery(self.event) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            answer => check("cuEventQuery", answer).map(|()| true),
        }
    }

    /// Microseconds from the passing of `earlier` to that of this event. Both keep time and are passed.
    pub fn since_us(&self, earlier: &Self) -> Result<f32, DeviceError> {
        let mut elapsed_ms = 0.0;
        // SAFETY: both are alive, and the driver writes one number.
        check("cuEventElapsedTime", unsafe {
            sys::cuEventElapsedTime_v2(&raw mut elapsed_ms, earlier.event, self.event)
        })?;
        Ok(elapsed_ms * 1e3)
    }

    /// Blocks until what the event was recorded behind is complete.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        // SAFETY: the event is alive.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.event) })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        report(self.context.bind());
        // SAFETY: the event was made in `new`.
        report(check("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(self.event) }));
    }
}

/// Host memory that the device copies from and to by itself.
#[derive(Debug)]
pub struct Pinned {
    context: Arc<Context>,
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: it is memory like any other, owned by this value alone.
unsafe impl Send for Pinned {}

impl Pinned {
    /// Zero-filled memory of `length` bytes, at least one.
    pub fn new(context: &Arc<Context>, length: usize) -> Result<Self, DeviceError> {
        let length = length.max(1);
        let mut start = std::ptr::null_mut();
        // SAFETY: the driver writes one pointer, which is freed in `drop`.
        check("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&raw mut start, length, 0) })?;
        let start =
            NonNull::new(start.cast::<u8>()).expect("the driver gives memory where it reports success");
        // SAFETY: the memory is as long and belongs to nobody else.
        unsafe { start.write_bytes(0, length) };
        Ok(Self { context: Arc::clone(context), start, length })
    }
}

impl std::ops::Deref for Pinned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is initialized, this long, and borrowed as `self` is.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl std::ops::DerefMut for Pinned {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed by nobody else.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        report(self.context.bind());
        // SAFETY: the memory came from the driver, and its owner has ended every copy that uses it.
        report(check("cuMemFreeHost", unsafe { sys::cuMemFreeHost(self.start.as_ptr().cast()) }));
    }
}
