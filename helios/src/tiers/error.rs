//! Why a tier did not do what it was asked.

use std::io;
use std::path::{Path, PathBuf};

use crate::device::DeviceError;
use crate::ids::Digest;

/// A transfer or a tier that failed. Nothing here is fatal: what a tier cannot give is computed again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TierError {
    /// The command queue is full.
    #[error("{queued_max} transfers of this kind wait already; go on without this one")]
    QueueFull { queued_max: usize },
    /// The tier thread has ended, or is about to.
    #[error("the tier thread takes no more transfers")]
    Stopped,
    /// The transfer's access to the device was taken back.
    #[error("the transfer was abandoned")]
    Abandoned,
    /// Every tier is off.
    #[error("no tier is on")]
    Off,
    /// A checkpoint or page that is not here, or no longer.
    #[error("no tier holds {key}")]
    Missing { key: Digest },
    /// A checkpoint that the whole tier could not hold.
    #[error(
        "checkpoint {key} takes {bytes} bytes and the tier may hold {budget_bytes}; give it more with its SIZE option"
    )]
    TooLarge { key: Digest, bytes: u64, budget_bytes: u64 },
    /// A memory tier on a device whose pages lie in the same memory.
    #[error(
        "the device shares its memory with the processors, so a copy in memory would take what the device's own pages could use; leave --prefix-cache-memory out"
    )]
    UnifiedMemory,
    /// Another process uses the folder.
    #[error("{} is in use by another server; give each its own --prefix-cache-disk", folder.display())]
    InUse { folder: PathBuf },
    /// Writing failed again and again and is not tried for a while.
    #[error("nothing is written to disk for another {retry_ms} ms, because writing kept failing")]
    Paused { retry_ms: u64 },
    /// A file that does not hold what was written.
    #[error("{} {reason}", path.display())]
    Damaged { path: PathBuf, reason: &'static str },
    /// The file system refused something.
    #[error("{operation} {} failed: {description}", path.display())]
    Io { operation: &'static str, path: PathBuf, code: i32, description: String },
    /// A copy from or to the device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl TierError {
    pub(super) fn io(operation: &'static str, path: &Path, error: &io::Error) -> Self {
        let code = error.raw_os_error().unwrap_or(0);
        Self::Io { operation, path: path.to_owned(), code, description: error.to_string() }
    }

    /// Whether what was read will not be there the next time either: all but a shortage of this process.
    pub(super) fn is_lasting(&self) -> bool {
        use rustix::io::Errno;
        let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::INTR];
        match self {
            Self::Io { code, .. } => shortages.iter().all(|errno| errno.raw_os_error() != *code),
            _ => true,
        }
    }
}
