//! Why a core was refused.

use std::path::PathBuf;

/// A core that cannot be loaded. Nothing of it has been mapped or executed.
#[derive(Debug, thiserror::Error)]
pub enum CoreError {
    /// The file could not be opened or read.
    #[error("cannot read {}: {source}; give the folder that `ignition prepare` wrote", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    /// The file is something else.
    #[error("{} is not a runtime core: {reason}; give the folder that `ignition prepare` wrote", path.display())]
    Foreign { path: PathBuf, reason: String },
    /// The file is shorter or longer than its header says.
    #[error(
        "{} is incomplete: its header describes {described_bytes} bytes and the file has {file_bytes}; copy it or prepare it again",
        path.display()
    )]
    WrongLength { path: PathBuf, described_bytes: u64, file_bytes: u64 },
    /// The core was written for another release.
    #[error(
        "the core has ABI {abi} and this release loads ABI {supported}; prepare the model again with this release"
    )]
    UnsupportedAbi { abi: String, supported: u32 },
    /// The bytes are not those that were written.
    #[error(
        "the core is damaged: its digest is {actual} and was {expected} when it was written; copy it or prepare it again"
    )]
    Damaged { expected: String, actual: String },
    /// A tensor of the file is missing or is not what the contract says.
    #[error("tensor `{name}` of the core {reason}; prepare the model again")]
    Tensor { name: String, reason: String },
    /// A field of the contract does not hold what it must.
    #[error("the core's contract is invalid: {field} {reason}; prepare the model again with this release")]
    Contract { field: String, reason: String },
    /// The core was prepared for another processor.
    #[error(
        "the core was prepared for a processor with {}, which this one lacks; prepare the model on this machine",
        missing.join(", ")
    )]
    WrongProcessor { missing: Vec<String> },
    /// The core was prepared for another kind of device.
    #[error("the core was prepared for {prepared}, and {present}; prepare the model for this device")]
    WrongDevice { prepared: String, present: String },
}

impl CoreError {
    /// An invalid field, named by its path within the contract.
    pub(super) fn contract(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Contract { field: field.into(), reason: reason.into() }
    }

    /// A tensor that is missing or wrong.
    pub(super) fn tensor(name: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Tensor { name: name.into(), reason: reason.into() }
    }
}
