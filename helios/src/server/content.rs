//! What a message says: a text, or an array of parts that are texts.
//!
//! The kinds of text of all APIs are taken by each, because clients replay to one what another wrote. Texts are joined by
//! line feeds. An image is taken only where its sender could not leave it out.

use serde_json::Value;

use super::error::ApiError;
use super::fields::{Fields, unsupported, wrong_type};

/// Stands for an image in a tool's result, which the agent that sent it cannot take back.
const OMITTED_IMAGE: &str = "[An image was here, which this model cannot see.]";

/// What happens to an image among the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Images {
    Refused,
    /// The model is told that there was one.
    Named,
}

/// One part of a content.
#[derive(Debug)]
pub(super) enum Part<'a> {
    Text(&'a str),
    Other { kind: &'a str, fields: Fields<'a> },
}

/// The parts of a content; a string is one of them.
///
/// # Errors
/// A 400 that names the field.
pub(super) fn parts<'a>(content: &'a Value, path: &str) -> Result<Vec<Part<'a>>, ApiError> {
    match content {
        Value::String(text) => Ok(vec![Part::Text(text)]),
        Value::Array(parts) => parts
            .iter()
            .enumerate()
            .map(|(index, part)| read_part(Fields::at(part, format!("{path}[{index}]"))?))
            .collect(),
        other => Err(wrong_type(path, "a string or an array of parts", other)),
    }
}

/// The one text that parts make up.
///
/// # Errors
/// A 400 for a part that is no text.
pub(super) fn joined(parts: &[Part<'_>], images: Images) -> Result<String, ApiError> {
    let text = |part: &Part<'_>| match part {
        Part::Text(text) => Ok((*text).to_owned()),
        Part::Other { kind: "image" | "image_url" | "input_image", .. } if images == Images::Named => {
            Ok(OMITTED_IMAGE.to_owned())
        }
        Part::Other { kind, fields } => Err(refused(kind, fields)),
    };
    let texts: Vec<String> = parts.iter().map(text).collect::<Result<_, _>>()?;
    Ok(texts.join("\n"))
}

/// The text of a content.
///
/// # Errors
/// A 400 that names the field.
pub(super) fn read_text(content: &Value, path: &str, images: Images) -> Result<String, ApiError> {
    joined(&parts(content, path)?, images)
}

/// The error for a part that this model cannot take.
pub(super) fn refused(kind: &str, fields: &Fields<'_>) -> ApiError {
    let reason = format!("this model takes text alone, not parts of type '{kind}'");
    unsupported(&fields.path("type"), &reason)
}

fn read_part(fields: Fields<'_>) -> Result<Part<'_>, ApiError> {
    Ok(match fields.required("type")? {
        "text" | "input_text" | "output_text" => Part::Text(fields.required("text")?),
        "refusal" => Part::Text(fields.required("refusal")?),
        kind => Part::Other { kind, fields },
    })
}
