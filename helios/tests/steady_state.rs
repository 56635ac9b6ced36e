//! Steady state allocates nothing: no thread of the process asks for memory while a loaded core uploads, launches, waits and reads.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use helios::core::Core;
use helios::core::proto::ValueSource;
use helios::device::{DeviceError, ProgramId};
use helios::memory::{MemoryOptions, load};

#[path = "cores/support.rs"]
mod support;

/// The system's allocator, counting what is asked of it.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[expect(unsafe_code, reason = "an allocator's interface is unsafe; each call is the system's own")]
// SAFETY: every call is passed on unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn steps_allocate_nothing() {
    let folder = tempfile::tempdir().unwrap();
    support::TinyCore::new().write(folder.path());
    let mut core =
        load(Core::open(folder.path()).unwrap(), &MemoryOptions { limit_bytes: Some(64 << 20) }, &mut |_| ())
            .unwrap();
    let prompt = core.contract.buffer(ValueSource::AdmissionPrompt).unwrap();
    let completion = core.contract.buffer(ValueSource::Completion).unwrap();
    let sum = core.contract.programs.iter().position(|program| program.name == "decode.2").unwrap();
    let sum = ProgramId(sum as u32);
    let mut read = [0; 8];

    let mut step = |value: u8| -> Result<(), DeviceError> {
        let bytes = [value; 256 * 8];
        core.executor.upload(prompt, 0, &bytes[..1024])?;
        core.executor.upload(prompt, 1024, &bytes[1024..])?;
        let fence = core.executor.launch(sum)?;
        // Every other step sleeps long enough for the execution thread to park.
        if value.is_multiple_of(2) {
            std::thread::sleep(Duration::from_micros(500));
        }
        while !core.executor.is_complete(fence)? {
            core.executor.wait(fence, Duration::from_secs(20))?;
        }
        core.executor.read(completion, 0, &mut read)?;
        let word = i64::from_le_bytes([value; 8]);
        assert_eq!(i64::from_le_bytes(read), word.wrapping_mul(256));
        Ok(())
    };
    // The first steps start the OpenMP team and end the read-ahead.
    for value in 0..10 {
        step(value).unwrap();
    }
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    for value in 0..200 {
        step(value).unwrap();
    }
    assert_eq!(ALLOCATIONS.load(Ordering::SeqCst) - before, 0, "200 steps asked for memory");
}
