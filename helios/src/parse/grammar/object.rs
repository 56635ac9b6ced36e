//! A call as one JSON object: `{"name": NAME, "arguments": {...}}`.
//!
//! `parameters` says the same as `arguments`, in any order with the name. `id` and `type` may stand beside them; any other
//! key is no call, so that an ordinary JSON answer is let go at its first key.

use super::super::json;
use super::super::scan::is_space;
use super::super::tape::{Stop, Tape};

/// How the form writes such calls, for who has them written so. The first one has its opener before it, if that is no part of
/// the object itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Objects {
    /// The key that its models are used to.
    pub arguments: &'static str,
    /// What follows an object.
    pub close: &'static str,
    /// What stands between one's end and another object.
    pub between: &'static str,
}

/// Reads a whole object.
pub async fn read(tape: &Tape) -> Result<(), Stop> {
    tape.literal("{").await?;
    members(tape).await
}

/// Reads an object from behind its opening brace.
pub async fn members(tape: &Tape) -> Result<(), Stop> {
    let mut has_arguments = false;
    loop {
        tape.skip(is_space).await?;
        let key = json::string(tape).await?;
        let is_arguments = matches!(key.as_str(), "arguments" | "parameters") && !has_arguments;
        if !is_arguments && !matches!(key.as_str(), "name" | "id" | "type") {
            return Err(Stop::Malformed);
        }
        tape.skip(is_space).await?;
        tape.literal(":").await?;
        tape.skip(is_space).await?;
        if is_arguments {
            has_arguments = true;
            arguments(tape).await?;
        } else if key == "name" {
            tape.name_call(&json::string(tape).await?)?;
        } else if tape.peek().await? == '"' {
            json::string(tape).await?;
        } else {
            json::scalar(tape).await?;
        }
        tape.skip(is_space).await?;
        if tape.one_of(&[",", "}"]).await? == 1 {
            return Ok(());
        }
    }
}

/// An object, the same as text in a string, or null for no arguments.
async fn arguments(tape: &Tape) -> Result<(), Stop> {
    match tape.peek().await? {
        '{' => json::object_arguments(tape).await,
        '"' => json::string_arguments(tape).await,
        _ => tape.literal("null").await,
    }
}
