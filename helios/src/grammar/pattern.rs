//! Patterns of JSON Schema, in a form that llguidance reads as the standard means it.

use llguidance::regex_to_lark;
use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, HirKind, Repetition};

use super::source::check_regex;

/// What classes may hold. U+0085 and U+FEFF are left out because `\s` means one of them here, and the other in ECMAScript.
const WRITABLE: &[(char, char)] = &[
    ('\u{8}', '\n'),
    ('\u{c}', '\r'),
    (' ', '~'),
    ('\u{80}', '\u{84}'),
    ('\u{86}', '\u{fefe}'),
    ('\u{ff00}', char::MAX),
];
/// A dot of ECMAScript's stops at more line ends.
const NO_LINE_END: &[(char, char)] =
    &[('\0', '\t'), ('\u{b}', '\u{c}'), ('\u{e}', '\u{2027}'), ('\u{202a}', char::MAX)];

/// A pattern for the same texts, as far as JSON text can hold them without `\u` escapes.
///
/// Where a class holds all control characters, as `[^"]` does, llguidance takes `\"` and `\\` to be in it too. So the control
/// characters that have no short escape, which no answer can hold anyhow, are taken out of every class.
///
/// # Errors
/// What about the pattern is not supported.
pub(super) fn enforceable(pattern: &str) -> Result<String, String> {
    if pattern.is_empty() {
        return Ok(String::new());
    }
    check_regex(pattern)?;
    if has_foreign_class(pattern) {
        return Err("brackets and set operators inside of a character class must be escaped".to_owned());
    }
    let parsed = regex_syntax::parse(&regex_to_lark(pattern, "dw")).map_err(|error| error.to_string())?;
    Ok(writable(parsed)?.to_string())
}

/// Whether JSON text can hold a character without `\u`.
pub(super) fn is_writable(character: char) -> bool {
    !character.is_ascii_control() || matches!(character, '\u{8}' | '\u{c}' | '\n' | '\r' | '\t')
}

fn writable(expression: Hir) -> Result<Hir, String> {
    let all = |parts: Vec<Hir>| parts.into_iter().map(writable).collect::<Result<Vec<_>, _>>();
    Ok(match expression.into_kind() {
        HirKind::Empty => Hir::empty(),
        HirKind::Look(look) => Hir::look(look),
        HirKind::Literal(literal) => {
            let text = String::from_utf8_lossy(&literal.0);
            if !text.chars().all(is_writable) {
                return Err("control characters in patterns are not supported".to_owned());
            }
            Hir::literal(literal.0)
        }
        HirKind::Class(Class::Unicode(mut class)) => {
            let is_dot = class == class_of(&[('\0', '\t'), ('\u{b}', char::MAX)]);
            class.intersect(&class_of(WRITABLE));
            if is_dot {
                class.intersect(&class_of(NO_LINE_END));
            }
            Hir::class(Class::Unicode(class))
        }
        HirKind::Class(Class::Bytes(_)) => return Err("classes of bytes are not supported".to_owned()),
        HirKind::Repetition(repetition) => {
            Hir::repetition(Repetition { sub: Box::new(writable(*repetition.sub)?), ..repetition })
        }
        HirKind::Capture(capture) => writable(*capture.sub)?,
        HirKind::Concat(parts) => Hir::concat(all(parts)?),
        HirKind::Alternation(parts) => Hir::alternation(all(parts)?),
    })
}

fn class_of(ranges: &[(char, char)]) -> ClassUnicode {
    ClassUnicode::new(ranges.iter().map(|&(first, last)| ClassUnicodeRange::new(first, last)))
}

/// Whether a class holds what ECMAScript reads as characters, and llguidance as a nested class or an operator.
fn has_foreign_class(pattern: &str) -> bool {
    let bytes = pattern.as_bytes();
    let mut in_class = false;
    let mut index = 0;
    while index < bytes.len() {
        match bytes[index] {
            b'\\' => index += 1,
            b'[' if in_class => return true,
            b'[' => in_class = true,
            b']' => in_class = false,
            byte @ (b'&' | b'~' | b'-') if in_class && bytes.get(index + 1) == Some(&byte) => return true,
            _ => {}
        }
        index += 1;
    }
    false
}
