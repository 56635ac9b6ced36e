//! Why `flare` ends with an error, and the exit code that says so to a script.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use helios::memory::LoadError;
use helios::runtime::worker::WorkerError;
use helios::text::FrontendError;

/// Why serving did not start, or did not end in order.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("{0}")]
    Load(#[from] LoadError),
    #[error("{0}")]
    Frontend(#[from] FrontendError),
    #[error("the core cannot be served: {0}")]
    Worker(#[from] WorkerError),
    #[error("cannot listen on {address}: {error}; choose another with --host and --port")]
    Listen { address: SocketAddr, error: io::Error },
    #[error("the keys in {} cannot be read: {reason}", file.display())]
    Keys { file: PathBuf, reason: String },
    #[error("the system refused what serving needs: {0}")]
    System(#[from] io::Error),
    #[error("the model thread did not end within the drain time")]
    Stuck,
}

impl RunError {
    /// 1: the system or a stuck thread; 3: the core is not valid or not for this machine; 4: not enough memory; 5: the address.
    /// (2 is clap's, for a wrong command line.)
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Load(LoadError::Memory(_)) => 4,
            Self::Load(_) | Self::Frontend(_) | Self::Worker(_) => 3,
            Self::Listen { .. } => 5,
            Self::Keys { .. } | Self::System(_) | Self::Stuck => 1,
        }
    }
}
