//! Reading a core's storage ahead of its first use, beside everything else.
//!
//! Weights are mapped, not read, so a server is ready before they are in memory. One thread then brings them in, in file
//! order and in small steps, so that it can be stopped at any time. It is only faster, never needed: kernels that
//! come first fault the same bytes in.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::mapping::Mapping;
use crate::device::{DeviceError, io_error};

const STEP_BYTES: u64 = 8 << 20;

/// The thread that reads ahead; dropping it stops and joins the thread.
pub struct ReadAhead {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ReadAhead {
    /// Starts reading the mappings in.
    pub fn start(mappings: Vec<Arc<Mapping>>) -> Result<Self, DeviceError> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("flare-read-ahead".to_owned())
            .spawn(move || mappings.iter().for_each(|mapping| read(mapping, &stopped)))
            .map_err(|error| io_error("starting the read-ahead thread", &error))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the read-ahead thread had panicked");
        }
    }
}

fn read(mapping: &Mapping, stopped: &AtomicBool) {
    let mut offset_bytes = 0;
    while offset_bytes < mapping.backed_bytes() && !stopped.load(Ordering::Relaxed) {
        let bytes = STEP_BYTES.min(mapping.backed_bytes() - offset_bytes);
        if let Err(error) = mapping.populate(offset_bytes, bytes) {
            tracing::debug!(%error, "read-ahead ends; the rest is read as it is used");
            return;
        }
        offset_bytes += bytes;
    }
}
