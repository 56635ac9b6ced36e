//! Reasoning between tags: the output up to the tag that closes it.

use super::delimiters::Delimiters;
use super::output::Found;
use super::scan::{Scanner, is_line_end};
use super::tape::Tape;

/// Where each delimiter stands among those that are looked for.
const CLOSE: usize = 0;
const OPEN: usize = 1;
const CALLS: usize = 2;

/// Reads reasoning to its end and says what follows. Reasoning that nothing closes lasts to the output's end.
///
/// A model may write the opening tag again that its prompt has written already.
pub async fn read(tape: &Tape, delimiters: &Delimiters) -> Found {
    let Some(tags) = delimiters.reasoning else { return Found::Text };
    let mut all = vec![tags.close, tags.open];
    if delimiters.calls_end_reasoning {
        all.extend(delimiters.calls);
    }
    let mut scanner = Scanner::new(&all, is_line_end);
    let mut has_any = false;
    if tape.skip(is_line_end).await.is_err() {
        return Found::End;
    }
    loop {
        let Ok(character) = tape.next().await else {
            tape.reasoning(&scanner.take());
            return Found::End;
        };
        let mut released = String::new();
        let found = scanner.push(character, &mut released);
        tape.reasoning(&released);
        has_any |= !released.is_empty();
        match found {
            None => {}
            Some(CLOSE) => {
                return if tape.skip(is_line_end).await.is_ok() { Found::Text } else { Found::End };
            }
            Some(OPEN) if has_any => tape.reasoning(&scanner.take()),
            Some(OPEN) => {
                scanner.take();
                if tape.skip(is_line_end).await.is_err() {
                    return Found::End;
                }
            }
            Some(call) => {
                tape.hold(scanner.take());
                return Found::Call(call - CALLS);
            }
        }
    }
}
