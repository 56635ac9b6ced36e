//! The runtime core: read the file, validate the contract, bind it to typed views.
//!
//! Everything in a file is an allegation until [`contract::BoundContract`] has been built from it. Opening a core maps nothing
//! and executes nothing. Only this module and the server know serialized types.

mod bind;
pub mod contract;
mod error;
mod file;
pub mod machine;

/// Messages generated from `proto/core.proto`.
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/flare.core.v1.rs"));
}

use std::path::Path;
use std::sync::Arc;

use prost::Message;

use contract::{BoundContract, FrontendAssets};
pub use error::CoreError;
pub use file::{ABI, CoreFile, Extent, FILE_NAME};

const CONTRACT_BYTES_MAX: u64 = 64 << 20;
const IMAGES_BYTES_MAX: u64 = 1 << 30;
const IMAGES_MAX: u32 = 1024;
const TOKENIZER_BYTES_MAX: u64 = 128 << 20;
const TEMPLATE_BYTES_MAX: u64 = 1 << 20;

/// A validated core: its contract, the small payloads, and the file that holds the storage.
#[derive(Debug)]
pub struct Core {
    pub contract: Arc<BoundContract>,
    pub assets: Arc<FrontendAssets>,
    /// The image of each of the contract's modules.
    pub images: Vec<Vec<u8>>,
    pub file: CoreFile,
}

impl Core {
    /// Opens the core in `folder` and validates everything but its storage payloads, which it does not read.
    pub fn open(folder: &Path) -> Result<Self, CoreError> {
        let file = CoreFile::open(folder)?;
        let encoded = file.read("contract", CONTRACT_BYTES_MAX)?;
        let images = read_images(&file)?;
        let tokenizer = file.read("frontend.tokenizer", TOKENIZER_BYTES_MAX)?;
        let template = file.read("frontend.template", TEMPLATE_BYTES_MAX)?;

        let small = [&tokenizer, &template];
        let parts = std::iter::once(&encoded).chain(&images).chain(small);
        file.check_digest(parts.map(Vec::as_slice))?;

        let contract = proto::PreparedContract::decode(encoded.as_slice())
            .map_err(|error| CoreError::tensor("contract", format!("is no contract ({error})")))?;
        let contract = bind::bind(contract, &file, images.len())?;
        let template = String::from_utf8(template)
            .map_err(|error| CoreError::tensor("frontend.template", format!("is not UTF-8 ({error})")))?;
        let assets = Arc::new(FrontendAssets { tokenizer, template });
        Ok(Self { contract: Arc::new(contract), assets, images, file })
    }
}

fn read_images(file: &CoreFile) -> Result<Vec<Vec<u8>>, CoreError> {
    let mut images = Vec::new();
    let mut bytes_left = IMAGES_BYTES_MAX;
    for name in (0..IMAGES_MAX).map(|index| format!("module.{index}")) {
        if !file.contains(&name) {
            break;
        }
        let image = file.read(&name, bytes_left)?;
        bytes_left -= image.len() as u64;
        images.push(image);
    }
    Ok(images)
}
