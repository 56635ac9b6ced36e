//! The core's file: a safetensors file whose header has been checked against its length.
//!
//! Opening reads the header alone. Payloads stay in the file: small tensors are read on demand within a stated bound,
//! and storage is mapped by a device from the descriptor that this module keeps open. A core is replaced by renaming a new file
//! over it, so an open core never changes.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use safetensors::tensor::Metadata;
use sha2::{Digest as _, Sha256};

use super::CoreError;
use crate::ids::Digest;

/// The file of a core's only rank.
pub const FILE_NAME: &str = "rank-0.safetensors";
/// The one ABI that this release loads.
pub const ABI: u32 = 1;

const FORMAT: &str = "flare-core";
const HEADER_BYTES_MAX: u64 = 1 << 20;
const LENGTH_BYTES: u64 = 8;
const STORAGE_ALIGNMENT_BYTES: u64 = 4096;
const DIGEST_CHUNK_BYTES: usize = 1 << 20;

/// Where a tensor lies in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub offset_bytes: u64,
    pub bytes: u64,
}

/// An open core whose tensors all lie within the file, none over another.
#[derive(Debug)]
pub struct CoreFile {
    path: PathBuf,
    file: File,
    tensors: BTreeMap<String, Extent>,
    /// Lower-case hex of what the writer put into the file.
    digest: String,
}

impl CoreFile {
    /// Opens the core in `folder` and checks its header, format, ABI and length.
    pub fn open(folder: &Path) -> Result<Self, CoreError> {
        let path = folder.join(FILE_NAME);
        let unreadable = |source| CoreError::Unreadable { path: path.clone(), source };
        let file = File::open(&path).map_err(unreadable)?;
        let file_bytes = file.metadata().map_err(unreadable)?.len();
        let header = read_header(&path, &file, file_bytes)?;
        let metadata: Metadata = serde_json::from_slice(&header).map_err(|error| CoreError::Foreign {
            path: path.clone(),
            reason: format!("its header is not that of a safetensors file ({error})"),
        })?;

        let payload_start = LENGTH_BYTES + header.len() as u64;
        let described_bytes = payload_start.saturating_add(metadata.data_len() as u64);
        if described_bytes != file_bytes {
            return Err(CoreError::WrongLength { path, described_bytes, file_bytes });
        }
        let digest = check_metadata(&path, &metadata)?;
        let tensors = metadata.tensors().into_iter().map(|(name, info)| {
            let (start, end) = info.data_offsets;
            let offset_bytes = payload_start + start as u64;
            (name, Extent { offset_bytes, bytes: (end - start) as u64 })
        });
        Ok(Self { tensors: tensors.collect(), path, file, digest })
    }

    /// The open descriptor, for mapping storage.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The file's path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The payload of storage region `region`, which starts at a multiple of 4096.
    pub fn storage(&self, region: &str) -> Result<Extent, CoreError> {
        let name = format!("storage.{region}");
        let extent = self.extent(&name)?;
        if !extent.offset_bytes.is_multiple_of(STORAGE_ALIGNMENT_BYTES) {
            let offset = extent.offset_bytes;
            return Err(CoreError::tensor(
                name,
                format!("starts at byte {offset}, which is no multiple of 4096"),
            ));
        }
        Ok(extent)
    }

    /// Whether the file has tensor `name`.
    pub fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Reads tensor `name`, which may have `bytes_max` bytes at most.
    pub fn read(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>, CoreError> {
        let extent = self.extent(name)?;
        if extent.bytes > bytes_max {
            return Err(CoreError::tensor(
                name,
                format!("has {} bytes, and {bytes_max} are the limit", extent.bytes),
            ));
        }
        let mut bytes = vec![0; usize::try_from(extent.bytes).expect("a bounded length fits")];
        self.file
            .read_exact_at(&mut bytes, extent.offset_bytes)
            .map_err(|source| CoreError::Unreadable { path: self.path.clone(), source })?;
        Ok(bytes)
    }

    /// What the writer digested: everything but the storage payloads, which the contract's own digest stands for.
    pub fn digest(&self) -> Digest {
        let byte = |index: usize| u8::from_str_radix(&self.digest[2 * index..2 * index + 2], 16);
        Digest(std::array::from_fn(|index| byte(index).expect("the constructor saw 64 hexadecimal digits")))
    }

    /// Checks the parts that the writer digested, in its order, against what it put down.
    pub fn check_digest<'a>(&self, parts: impl Iterator<Item = &'a [u8]>) -> Result<(), CoreError> {
        let mut hasher = Sha256::new();
        for chunk in parts.flat_map(|part| part.chunks(DIGEST_CHUNK_BYTES)) {
            hasher.update(chunk);
        }
        let actual: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        if actual == self.digest {
            Ok(())
        } else {
            Err(CoreError::Damaged { expected: self.digest.clone(), actual })
        }
    }

    fn extent(&self, name: &str) -> Result<Extent, CoreError> {
        self.tensors.get(name).copied().ok_or_else(|| CoreError::tensor(name, "is missing"))
    }
}

fn read_header(path: &Path, file: &File, file_bytes: u64) -> Result<Vec<u8>, CoreError> {
    let unreadable = |source| CoreError::Unreadable { path: path.to_owned(), source };
    let foreign = |reason: String| CoreError::Foreign { path: path.to_owned(), reason };
    if file_bytes < LENGTH_BYTES {
        return Err(foreign(format!("it has {file_bytes} bytes")));
    }
    let mut length = [0; LENGTH_BYTES as usize];
    file.read_exact_at(&mut length, 0).map_err(unreadable)?;
    let length = u64::from_le_bytes(length);
    if length > HEADER_BYTES_MAX {
        return Err(foreign(format!(
            "its header would have {length} bytes, and {HEADER_BYTES_MAX} are the limit"
        )));
    }
    if length > file_bytes - LENGTH_BYTES {
        let described_bytes = LENGTH_BYTES + length;
        return Err(CoreError::WrongLength { path: path.to_owned(), described_bytes, file_bytes });
    }
    let mut header = vec![0; usize::try_from(length).expect("a bounded length fits")];
    file.read_exact_at(&mut header, LENGTH_BYTES).map_err(unreadable)?;
    Ok(header)
}

/// Checks the format and the ABI, and returns the digest that the writer put down.
fn check_metadata(path: &Path, metadata: &Metadata) -> Result<String, CoreError> {
    let foreign = |reason: &str| CoreError::Foreign { path: path.to_owned(), reason: reason.to_owned() };
    let entries = metadata.metadata().as_ref().ok_or_else(|| foreign("it has no metadata"))?;
    if entries.get("format").map(String::as_str) != Some(FORMAT) {
        return Err(foreign("its metadata does not name the format `flare-core`"));
    }
    let abi = entries.get("abi").ok_or_else(|| foreign("its metadata names no ABI"))?;
    if abi != &ABI.to_string() {
        return Err(CoreError::UnsupportedAbi { abi: abi.chars().take(16).collect(), supported: ABI });
    }
    let digest = entries.get("digest").ok_or_else(|| foreign("its metadata holds no digest"))?;
    if !super::bind::is_digest(digest) {
        return Err(foreign("its digest is not 64 lower-case hexadecimal digits"));
    }
    Ok(digest.clone())
}
