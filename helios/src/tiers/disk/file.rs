//! The files of the disk tier: one payload each, with what it is before it and a SHA-256 of everything after it.
//!
//! A file is believed only if its header names what was asked for and its digest fits, so neither a torn write nor a file that
//! was moved, cut or changed can pass for another.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use sha2::Sha256;
use sha2::digest::{Digest as _, Output};

use super::layout::Kind;
use crate::ids::Digest;
use crate::tiers::TierError;

/// Changes with every change of the files' content; files of another version are removed.
const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"flarekv\n";
/// Magic, version, kind, core, key and payload length, all integers little-endian.
const HEADER_BYTES: usize = 8 + 4 + 4 + 32 + 32 + 8;
const DIGEST_BYTES: usize = 32;
/// What a file takes beside its payload.
pub const OVERHEAD_BYTES: u64 = (HEADER_BYTES + DIGEST_BYTES) as u64;

/// What a file holds: the core, the kind and the key of its payload.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    pub core: Digest,
    pub kind: Kind,
    pub key: Digest,
}

impl Label {
    fn header(&self, payload_bytes: usize) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        let length = (payload_bytes as u64).to_le_bytes();
        let kind = (self.kind as u32).to_le_bytes();
        let fields: [&[u8]; 6] = [&MAGIC, &VERSION.to_le_bytes(), &kind, &self.core.0, &self.key.0, &length];
        let mut rest = &mut header[..];
        for field in fields {
            let (place, after) = rest.split_at_mut(field.len());
            place.copy_from_slice(field);
            rest = after;
        }
        header
    }
}

/// Writes a file at `incoming` and gives it its name. Whatever had either name is replaced.
///
/// The file is not flushed to the disk: after a kill it is whole or not there, and after a power failure its digest tells.
pub fn write(incoming: &Path, path: &Path, label: &Label, payload: &[u8]) -> Result<(), TierError> {
    let header = label.header(payload.len());
    let write = || {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(incoming)?;
        file.write_all(&header)?;
        file.write_all(payload)?;
        file.write_all(&digest(&header, payload))
    };
    write().map_err(|error| TierError::io("writing", incoming, &error))?;
    rename(incoming, path).map_err(|error| TierError::io("renaming a file to", path, &error))
}

/// Reads a file whose payload has as many bytes as `into`.
pub fn read(path: &Path, label: &Label, into: &mut [u8]) -> Result<(), TierError> {
    let mut file = File::open(path).map_err(|error| TierError::io("opening", path, &error))?;
    let damaged = |reason| TierError::Damaged { path: path.to_owned(), reason };
    let mut exact = |bytes: &mut [u8]| match file.read_exact(bytes) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(damaged("is cut short")),
        read => read.map_err(|error| TierError::io("reading", path, &error)),
    };
    let mut header = [0; HEADER_BYTES];
    exact(&mut header)?;
    if header != label.header(into.len()) {
        return Err(damaged("is not the file that belongs there"));
    }
    exact(into)?;
    let mut written = [0; DIGEST_BYTES];
    exact(&mut written)?;
    if written[..] != digest(&header, into)[..] {
        return Err(damaged("does not hold what was written to it"));
    }
    Ok(())
}

/// Reads a file whose payload is as long as the file says, up to `payload_bytes_max`.
pub fn read_whole(path: &Path, label: &Label, payload_bytes_max: u64) -> Result<Vec<u8>, TierError> {
    let metadata = path.metadata().map_err(|error| TierError::io("looking at", path, &error))?;
    let payload_bytes = metadata.len().checked_sub(OVERHEAD_BYTES);
    let payload_bytes = payload_bytes
        .filter(|&bytes| bytes <= payload_bytes_max)
        .and_then(|bytes| usize::try_from(bytes).ok());
    let damaged = TierError::Damaged { path: path.to_owned(), reason: "has an impossible length" };
    let mut payload = vec![0; payload_bytes.ok_or(damaged)?];
    read(path, label, &mut payload)?;
    Ok(payload)
}

fn digest(header: &[u8], payload: &[u8]) -> Output<Sha256> {
    Sha256::new().chain_update(header).chain_update(payload).finalize()
}

/// Renames, making the target's folder if it is not there.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = to.parent().expect("files of the tier lie in folders");
            super::layout::create_folder(folder)?;
            std::fs::rename(from, to)
        }
        renamed => renamed,
    }
}
