//! Torch's allocations in an arena: functions of the C interface that its pluggable allocator calls.
//!
//! That interface has no room for a context, so each open pool has a pair of functions of its own, from a fixed number.
#![expect(unsafe_code, reason = "torch calls functions of the C interface by name")]

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex};

use helios::device::DeviceError;
use helios::device::cuda::capture::Blocks;
use helios::device::cuda::driver::{check, sys};
use pyo3::prelude::*;

use super::arena::{CudaArena, Memory, lock};
use crate::error::HeliopauseError;

const POOLS_MAX: usize = 8;

static POOLS: [Mutex<Option<State>>; POOLS_MAX] = [const { Mutex::new(None) }; POOLS_MAX];

struct State {
    memory: Arc<Memory>,
    blocks: Blocks,
    failure: Option<String>,
}

/// A place among the pools, and with it a pair of functions.
#[pyclass(frozen, module = "flare_heliopause")]
pub struct CudaPool {
    place: usize,
    /// Whether the place is still this pool's.
    is_open: Mutex<bool>,
}

#[pymethods]
impl CudaPool {
    #[new]
    fn new(arena: &CudaArena) -> PyResult<Self> {
        let memory = arena.memory()?;
        for (place, pool) in POOLS.iter().enumerate() {
            let mut pool = lock(pool);
            if pool.is_none() {
                *pool = Some(State { memory, blocks: Blocks::default(), failure: None });
                return Ok(Self { place, is_open: Mutex::new(true) });
            }
        }
        Err(HeliopauseError::new_err(format!("{POOLS_MAX} pools are open already; close one first")))
    }

    #[getter]
    fn library(&self) -> PyResult<String> {
        let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
        let own: *const c_void = (flare_cuda_allocate_0 as *const ()).cast();
        // SAFETY: the address is that of a function here, and the loader fills the structure.
        if unsafe { libc::dladdr(own, found.as_mut_ptr()) } == 0 {
            return Err(HeliopauseError::new_err("the loader does not know this extension"));
        }
        // SAFETY: it is filled, and it was zeroed before.
        let found = unsafe { found.assume_init() };
        // SAFETY: the name is a C string that lives as long as the extension is loaded.
        Ok(unsafe { CStr::from_ptr(found.dli_fname) }.to_string_lossy().into_owned())
    }

    #[getter]
    fn allocate_symbol(&self) -> String {
        format!("flare_cuda_allocate_{}", self.place)
    }

    #[getter]
    fn free_symbol(&self) -> String {
        format!("flare_cuda_free_{}", self.place)
    }

    #[getter]
    fn used_bytes(&self) -> PyResult<u64> {
        self.with(|state| state.blocks.highest())
    }

    #[getter]
    fn failure(&self) -> PyResult<Option<String>> {
        self.with(|state| state.failure.clone())
    }

    fn close(&self) {
        if std::mem::take(&mut *lock(&self.is_open)) {
            lock(&POOLS[self.place]).take();
        }
    }
}

impl CudaPool {
    fn with<T>(&self, look: impl FnOnce(&State) -> T) -> PyResult<T> {
        let is_open = lock(&self.is_open);
        let state = lock(&POOLS[self.place]);
        let state = state.as_ref().filter(|_| *is_open);
        state.map(look).ok_or_else(|| HeliopauseError::new_err("the pool is closed"))
    }
}

impl State {
    fn allocate(&mut self, bytes: u64) -> Result<u64, String> {
        let limit = self.memory.bytes();
        let offset = self.blocks.take(bytes, limit);
        let offset =
            offset.ok_or_else(|| format!("{bytes} bytes do not fit into what is left of {limit}"))?;
        if let Err(error) = back_during_capture(&self.memory, self.blocks.highest()) {
            self.blocks.give_back(offset);
            return Err(error.to_string());
        }
        Ok(self.memory.address() + offset)
    }
}

/// Backs memory even while this thread captures a stream, which by itself forbids most calls: none of these is captured.
fn back_during_capture(memory: &Memory, bytes: u64) -> Result<(), DeviceError> {
    let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    let mut exchange = || {
        // SAFETY: the driver exchanges the thread's mode for the one that is given.
        let answer = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
        check("cuThreadExchangeStreamCaptureMode", answer)
    };
    exchange()?;
    let backed = memory.back(bytes);
    exchange()?;
    backed
}

/// What torch calls for memory: a null pointer says that there is none.
fn allocate(place: usize, bytes: isize) -> *mut c_void {
    let mut pool = lock(&POOLS[place]);
    let Some(state) = pool.as_mut() else { return std::ptr::null_mut() };
    match state.allocate(u64::try_from(bytes).unwrap_or(0)) {
        Ok(address) => std::ptr::without_provenance_mut(address as usize),
        Err(failure) => {
            state.failure = Some(failure);
            std::ptr::null_mut()
        }
    }
}

/// What torch calls with memory that it no longer needs. A pool that was closed has given all of it back.
fn free(place: usize, pointer: *mut c_void) {
    if let Some(state) = lock(&POOLS[place]).as_mut()
        && let Some(offset) = (pointer.addr() as u64).checked_sub(state.memory.address())
    {
        state.blocks.give_back(offset);
    }
}

macro_rules! functions {
    ($($place:literal $allocate:ident $free:ident;)*) => {
        $(
            // SAFETY: no other library has functions of this name.
            #[unsafe(no_mangle)]
            extern "C" fn $allocate(bytes: isize, _device: c_int, _stream: *mut c_void) -> *mut c_void {
                allocate($place, bytes)
            }

            // SAFETY: as above.
            #[unsafe(no_mangle)]
            extern "C" fn $free(pointer: *mut c_void, _bytes: isize, _device: c_int, _stream: *mut c_void) {
                free($place, pointer)
            }
        )*
        const _: () = assert!([$($place),*].len() == POOLS_MAX);
    };
}

functions! {
    0 flare_cuda_allocate_0 flare_cuda_free_0;
    1 flare_cuda_allocate_1 flare_cuda_free_1;
    2 flare_cuda_allocate_2 flare_cuda_free_2;
    3 flare_cuda_allocate_3 flare_cuda_free_3;
    4 flare_cuda_allocate_4 flare_cuda_free_4;
    5 flare_cuda_allocate_5 flare_cuda_free_5;
    6 flare_cuda_allocate_6 flare_cuda_free_6;
    7 flare_cuda_allocate_7 flare_cuda_free_7;
}
