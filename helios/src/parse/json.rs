//! JSON, a character at a time: whether it is well-formed, where a value ends, and what a string says.
//!
//! Strict as the standard is. What passes here, every client's parser takes.

use super::tape::{Stop, Tape};

/// Containers inside containers; common parsers refuse deeper ones.
const DEPTH_MAX: usize = 127;

/// One object or array, from its first character to its last.
#[derive(Debug, Default)]
pub struct Container {
    /// The characters that close what is open.
    closers: Vec<char>,
    expects: Expects,
    string: Option<StringDecoder>,
    /// A number, or a name such as `true`, that has not ended.
    scalar: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Expects {
    #[default]
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    Colon,
    CommaOrEnd,
}

/// One string, from behind its opening quote to its closing one.
#[derive(Debug, Default)]
pub struct StringDecoder {
    escape: Escape,
    /// The first half of a surrogate pair whose second must follow.
    high_surrogate: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Escape {
    #[default]
    None,
    Begun,
    Hexadecimal {
        digits: u32,
        value: u32,
    },
}

/// What a string's next character means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// Part of an escape.
    Nothing,
    Character(char),
    End,
}

impl Container {
    /// Takes the next character and says whether it was the last.
    pub fn push(&mut self, character: char) -> Result<bool, Stop> {
        if let Some(string) = &mut self.string {
            if string.push(character)? == Decoded::End {
                self.string = None;
            }
            return Ok(false);
        }
        if !self.scalar.is_empty() {
            if is_scalar(character) {
                self.scalar.push(character);
                return Ok(false);
            }
            checked_scalar(&self.scalar)?;
            self.scalar.clear();
        }
        self.structure(character)
    }

    fn structure(&mut self, character: char) -> Result<bool, Stop> {
        match (self.expects, character) {
            (_, ' ' | '\t' | '\n' | '\r') => return Ok(false),
            (Expects::Value | Expects::ValueOrEnd, '{') => self.open('}', Expects::KeyOrEnd)?,
            (Expects::Value | Expects::ValueOrEnd, '[') => self.open(']', Expects::ValueOrEnd)?,
            (Expects::KeyOrEnd, '}') | (Expects::ValueOrEnd, ']') => return Ok(self.close()),
            (Expects::CommaOrEnd, '}' | ']') if self.closers.last() == Some(&character) => {
                return Ok(self.close());
            }
            // The outermost value is a container.
            _ if self.closers.is_empty() => return Err(Stop::Malformed),
            (Expects::Key | Expects::KeyOrEnd, '"') => self.begin_string(Expects::Colon),
            (Expects::Value | Expects::ValueOrEnd, '"') => self.begin_string(Expects::CommaOrEnd),
            (Expects::Value | Expects::ValueOrEnd, _) if is_scalar(character) => {
                self.scalar.push(character);
                self.expects = Expects::CommaOrEnd;
            }
            (Expects::Colon, ':') => self.expects = Expects::Value,
            (Expects::CommaOrEnd, ',') => {
                let in_object = self.closers.last() == Some(&'}');
                self.expects = if in_object { Expects::Key } else { Expects::Value };
            }
            _ => return Err(Stop::Malformed),
        }
        Ok(false)
    }

    fn open(&mut self, closer: char, expects: Expects) -> Result<(), Stop> {
        if self.closers.len() == DEPTH_MAX {
            return Err(Stop::Malformed);
        }
        self.closers.push(closer);
        self.expects = expects;
        Ok(())
    }

    fn close(&mut self) -> bool {
        self.closers.pop();
        self.expects = Expects::CommaOrEnd;
        self.closers.is_empty()
    }

    fn begin_string(&mut self, then: Expects) {
        self.string = Some(StringDecoder::default());
        self.expects = then;
    }
}

impl StringDecoder {
    /// Takes the next character.
    pub fn push(&mut self, character: char) -> Result<Decoded, Stop> {
        match self.escape {
            Escape::None if self.high_surrogate.is_some() && character != '\\' => Err(Stop::Malformed),
            Escape::None => self.plain(character),
            Escape::Begun if self.high_surrogate.is_some() && character != 'u' => Err(Stop::Malformed),
            Escape::Begun => self.escaped(character),
            Escape::Hexadecimal { digits, value } => {
                let value = value * 16 + character.to_digit(16).ok_or(Stop::Malformed)?;
                if digits < 3 {
                    self.escape = Escape::Hexadecimal { digits: digits + 1, value };
                    return Ok(Decoded::Nothing);
                }
                self.escape = Escape::None;
                self.code_unit(value)
            }
        }
    }

    fn plain(&mut self, character: char) -> Result<Decoded, Stop> {
        match character {
            '"' => Ok(Decoded::End),
            '\\' => {
                self.escape = Escape::Begun;
                Ok(Decoded::Nothing)
            }
            '\0'..='\u{1f}' => Err(Stop::Malformed),
            _ => Ok(Decoded::Character(character)),
        }
    }

    fn escaped(&mut self, character: char) -> Result<Decoded, Stop> {
        self.escape = Escape::None;
        Ok(Decoded::Character(match character {
            '"' | '\\' | '/' => character,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                self.escape = Escape::Hexadecimal { digits: 0, value: 0 };
                return Ok(Decoded::Nothing);
            }
            _ => return Err(Stop::Malformed),
        }))
    }

    fn code_unit(&mut self, unit: u32) -> Result<Decoded, Stop> {
        let code = match (self.high_surrogate.take(), unit) {
            (None, 0xd800..=0xdbff) => {
                self.high_surrogate = Some(unit);
                return Ok(Decoded::Nothing);
            }
            (Some(high), 0xdc00..=0xdfff) => 0x10000 + ((high - 0xd800) << 10) + (unit - 0xdc00),
            (None, _) => unit,
            (Some(_), _) => return Err(Stop::Malformed),
        };
        char::from_u32(code).map(Decoded::Character).ok_or(Stop::Malformed)
    }
}

/// Reads a string whose opening quote is next.
pub async fn string(tape: &Tape) -> Result<String, Stop> {
    tape.literal("\"").await?;
    let mut decoder = StringDecoder::default();
    let mut text = String::new();
    loop {
        let decoded = decoder.push(tape.peek().await?)?;
        tape.next().await?;
        match decoded {
            Decoded::Nothing => {}
            Decoded::Character(character) => text.push(character),
            Decoded::End => return Ok(text),
        }
    }
}

/// Reads an object and writes it to the call's arguments as it stands.
pub async fn object_arguments(tape: &Tape) -> Result<(), Stop> {
    if tape.peek().await? != '{' {
        return Err(Stop::Malformed);
    }
    let mut object = Container::default();
    loop {
        let character = tape.peek().await?;
        let is_last = object.push(character)?;
        tape.next().await?;
        tape.arguments(character.encode_utf8(&mut [0; 4]), 0);
        if is_last {
            return Ok(());
        }
    }
}

/// Reads a string that holds an object, and writes the object to the call's arguments. An empty string is an empty object.
pub async fn string_arguments(tape: &Tape) -> Result<(), Stop> {
    tape.literal("\"").await?;
    let mut decoder = StringDecoder::default();
    let mut object = Container::default();
    let (mut has_begun, mut is_complete) = (false, false);
    loop {
        let decoded = decoder.push(tape.peek().await?)?;
        let is_blank = matches!(decoded, Decoded::Character(' ' | '\t' | '\n' | '\r'));
        match decoded {
            Decoded::End if has_begun != is_complete => return Err(Stop::Malformed),
            Decoded::Character(_) if is_complete && !is_blank => return Err(Stop::Malformed),
            Decoded::Character(first) if !has_begun && !is_blank && first != '{' => {
                return Err(Stop::Malformed);
            }
            Decoded::Character(character) if !is_complete => {
                has_begun |= !is_blank;
                is_complete = object.push(character)?;
            }
            _ => {}
        }
        tape.next().await?;
        match decoded {
            Decoded::End => return Ok(()),
            Decoded::Character(character) if has_begun => {
                tape.arguments(character.encode_utf8(&mut [0; 4]), 0);
            }
            _ => {}
        }
    }
}

/// Reads past a number or a name such as `null`, and gives its text.
pub async fn scalar(tape: &Tape) -> Result<String, Stop> {
    let mut text = String::new();
    while is_scalar(tape.peek().await?) {
        text.push(tape.next().await?);
    }
    checked_scalar(&text)?;
    Ok(text)
}

/// Characters of numbers and of `true`, `false` and `null`.
fn is_scalar(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '+' | '-' | '.')
}

fn checked_scalar(text: &str) -> Result<(), Stop> {
    serde_json::from_str::<serde_json::Value>(text).map(drop).map_err(|_| Stop::Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// Where the container that a text begins with ends.
    fn end_of(text: &str) -> Result<Option<usize>, Stop> {
        let mut container = Container::default();
        for (start, character) in text.char_indices() {
            if container.push(character)? {
                return Ok(Some(start + character.len_utf8()));
            }
        }
        Ok(None)
    }

    #[test]
    fn a_container_ends_where_it_ends() {
        for text in [
            "{}",
            "[ ]",
            r#"{"a": [1, -2.5e3, "]}\"", {"b": null}], "": "\ud83d\ude00 é"}"#,
            "[true, false, [[]]]",
        ] {
            assert_eq!(end_of(&format!("{text} tail")), Ok(Some(text.len())), "{text}");
            for cut in (0..text.len()).filter(|&cut| text.is_char_boundary(cut)) {
                assert_eq!(end_of(&text[..cut]), Ok(None), "{text} to {cut}");
            }
        }
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for text in [
            "1",
            "\"a\"",
            "{a: 1}",
            "{\"a\" 1}",
            "{\"a\": 1,}",
            "[1 2]",
            "[01]",
            "[nul]",
            "{\"a\": '1'}",
            "[1}",
            "[,1]",
            r#"["\x"]"#,
            "[\"line\nend\"]",
            r#"["\ud83d"]"#,
            r#"["\ud83d\n"]"#,
            r#"["\udc00"]"#,
        ] {
            assert_eq!(end_of(text), Err(Stop::Malformed), "{text}");
        }
        assert_eq!(end_of(&"[".repeat(128)), Err(Stop::Malformed));
    }

    proptest! {
        /// The definition is another parser: what begins like a container is one or is not.
        #[test]
        fn it_agrees_with_a_whole_parser(text in r#"[\[{]([\[\]{},:" 01e\-]|"a"|\\u|d83d|true|null){0,12}"#) {
            let whole = |end: usize| serde_json::from_str::<Value>(&text[..end]).is_ok();
            let known = (1..=text.len()).find(|&end| whole(end));
            prop_assert_eq!(end_of(&text).unwrap_or(None), known);
        }
    }
}
