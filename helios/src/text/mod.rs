//! Tokenizer, incremental decoding, chat templates and stop strings.
//!
//! Everything here is synchronous and bounded: input bytes, output bytes and template work have limits that are named
//! below. Encoding and rendering take time in proportion to their input, so callers run them away from the threads that
//! serve sockets. Nothing here knows of HTTP, of requests in flight, or of a model's name.

#[cfg(test)]
mod corpus;
mod decode;
mod endpoints;
mod json;
mod marks;
mod methods;
mod segments;
mod stop;
mod tags;
mod template;
#[cfg(test)]
pub(crate) mod testing;
mod tokenizer;
mod values;

pub use decode::IncrementalDecoder;
pub use stop::{Released, StopMatcher};
pub use template::{ChatTemplate, Rendering, TemplateError, TemplateInput};
pub use tokenizer::{Encoded, Piece, Recall, SpecialTokens, Tokenizer, TokenizerError};

use crate::core::contract::{BoundContract, FrontendAssets};

/// Bytes of text per token of context beyond which a prompt cannot fit: known vocabularies have no longer token.
const TOKEN_BYTES_MAX: usize = 256;

/// A core's text assets, ready for use.
#[derive(Debug)]
pub struct TextFrontend {
    pub tokenizer: Tokenizer,
    pub template: ChatTemplate,
}

/// Why a core's text assets cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FrontendError {
    #[error("the core's tokenizer cannot be used: {0}")]
    Tokenizer(#[from] TokenizerError),
    #[error("the core's chat template cannot be used: {0}")]
    Template(#[from] TemplateError),
}

impl TextFrontend {
    /// Parses a core's tokenizer and template.
    ///
    /// # Errors
    /// Whatever [`Tokenizer::from_bytes`] or [`ChatTemplate::parse`] finds wrong.
    pub fn new(contract: &BoundContract, assets: &FrontendAssets) -> Result<Self, FrontendError> {
        let text_bytes_max = contract.limits.context_tokens_max as usize * TOKEN_BYTES_MAX;
        let frontend = &contract.frontend;
        Ok(Self {
            tokenizer: Tokenizer::from_bytes(&assets.tokenizer, text_bytes_max)?,
            template: ChatTemplate::parse(
                &assets.template,
                &frontend.bos_text,
                &frontend.eos_text,
                text_bytes_max,
            )?,
        })
    }
}
