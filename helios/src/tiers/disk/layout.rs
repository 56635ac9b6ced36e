//! Where the disk tier's files lie, and which names are ours.
//!
//! ```text
//! DIR/flare.lock
//! DIR/<core>/incoming                     the file being written
//! DIR/<core>/pages/ab/<digest>            digests start with the name of their folder
//! DIR/<core>/rows/ab/<digest>
//! DIR/<core>/checkpoints/ab/<digest>
//! ```
//!
//! Nothing with another name is ever touched, and no symbolic link is followed to what is removed.

use std::fs::{DirBuilder, DirEntry};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::ids::Digest;

pub const LOCK_NAME: &str = "flare.lock";

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Page = 1,
    Row = 2,
    Checkpoint = 3,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Page, Self::Row, Self::Checkpoint];

    fn folder(self) -> &'static str {
        match self {
            Self::Page => "pages",
            Self::Row => "rows",
            Self::Checkpoint => "checkpoints",
        }
    }
}

/// The folder of one core's files.
pub struct CoreFolder {
    path: PathBuf,
}

impl CoreFolder {
    pub fn new(folder: &Path, core: Digest) -> Self {
        Self { path: folder.join(core.to_string()) }
    }

    pub fn create(&self) -> io::Result<()> {
        create_folder(&self.path)
    }

    pub fn incoming(&self) -> PathBuf {
        self.path.join("incoming")
    }

    pub fn file(&self, kind: Kind, key: Digest) -> PathBuf {
        let name = key.to_string();
        self.path.join(kind.folder()).join(&name[..2]).join(name)
    }

    /// All files of a kind that have a name of ours.
    pub fn files(&self, kind: Kind) -> io::Result<Vec<(Digest, DirEntry)>> {
        let mut files = Vec::new();
        for bucket in entries(&self.path.join(kind.folder()))? {
            let name = bucket.file_name();
            if !bucket.file_type()?.is_dir() || name.len() != 2 {
                continue;
            }
            for entry in entries(&bucket.path())? {
                let key = entry.file_name().to_str().and_then(parse_digest);
                let is_ours = |key: &Digest| key.to_string().as_bytes()[..2] == *name.as_encoded_bytes();
                if let Some(key) = key.filter(is_ours)
                    && entry.file_type()?.is_file()
                {
                    files.push((key, entry));
                }
            }
        }
        Ok(files)
    }

    /// Removes every file that is ours, and every folder that is empty then.
    pub fn remove(&self) -> io::Result<()> {
        for kind in Kind::ALL {
            for (_, entry) in self.files(kind)? {
                std::fs::remove_file(entry.path())?;
            }
            let folder = self.path.join(kind.folder());
            for bucket in entries(&folder)? {
                if bucket.file_type()?.is_dir() && bucket.file_name().len() == 2 {
                    remove_if_empty(&bucket.path())?;
                }
            }
            remove_if_empty(&folder)?;
        }
        remove_file(&self.incoming())?;
        remove_if_empty(&self.path)
    }
}

/// The folders of cores in the tier's folder.
pub fn cores(folder: &Path) -> io::Result<Vec<Digest>> {
    let mut cores = Vec::new();
    for entry in entries(folder)? {
        if entry.file_type()?.is_dir() {
            cores.extend(entry.file_name().to_str().and_then(parse_digest));
        }
    }
    Ok(cores)
}

/// Creates a folder that only its owner may read: conversations are private.
pub fn create_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Removes a file; one that is gone already is as good as removed.
pub fn remove_file(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn remove_if_empty(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        removed => removed,
    }
}

fn entries(folder: &Path) -> io::Result<Vec<DirEntry>> {
    match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.collect(),
    }
}

/// The digest that 64 lowercase hexadecimal digits name.
fn parse_digest(name: &str) -> Option<Digest> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = name.as_bytes().as_chunks::<2>();
    let mut bytes = [0; 32];
    if pairs.len() != bytes.len() || !rest.is_empty() {
        return None;
    }
    for (byte, &[high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(high)? << 4 | digit(low)?;
    }
    Some(Digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_written_as_a_digest_is_one() {
        let digest = Digest(std::array::from_fn(|index| index as u8 * 7));
        assert_eq!(parse_digest(&digest.to_string()), Some(digest));
        let zeros = "0".repeat(64);
        assert_eq!(parse_digest(&zeros), Some(Digest([0; 32])));
        for name in ["", &zeros[1..], &format!("{zeros}0"), &"F".repeat(64), &"g".repeat(64), &"é".repeat(32)]
        {
            assert_eq!(parse_digest(name), None, "{name}");
        }
    }
}
