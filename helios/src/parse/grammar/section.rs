//! Calls in a section of their own, each between marks.

use super::super::tape::{Stop, Tape};

/// Behind a call of a section: whether another one follows, whose `begin` is then read, as is one of `ends` that closes the section.
/// A section may end without either.
pub async fn has_another(tape: &Tape, begin: &str, ends: &[&str]) -> Result<bool, Stop> {
    if tape.visible().await != Some('<') {
        return Ok(false);
    }
    let mut marks = vec![begin];
    marks.extend(ends);
    match tape.one_of(&marks).await {
        Ok(mark) => Ok(mark == 0),
        Err(Stop::End) => Ok(false),
        Err(Stop::Malformed) => Err(Stop::Malformed),
    }
}
