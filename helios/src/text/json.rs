//! JSON as Python writes it: what chat templates were trained with.
//!
//! `tojson` follows Transformers' override of Jinja's filter, `json.dumps(value, ensure_ascii=False, ...)`: no
//! HTML escapes, `", "` and `": "` as separators, and floats as `repr` spells them.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use super::values::{as_float, is_float};

/// Fuel for each byte written, in fuel's own unit of 64 bytes copied: serializing walks a value.
const FUEL_PER_BYTE_INVERSE: u64 = 4;
/// `json.dumps` itself gives up near Python's recursion limit; values from a request are never this deep.
const DEPTH_MAX: usize = 256;

/// The `tojson` filter.
pub(super) fn tojson(state: &State, value: &Value, options: Kwargs) -> Result<Value, Error> {
    let ascii: bool = options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    let sort_keys: bool = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    let indent = options.get::<Option<usize>>("indent")?;
    let separators = options.get::<Option<Vec<String>>>("separators")?;
    options.assert_all_used()?;
    let item_separator = if indent.is_some() { "," } else { ", " };
    let (item_separator, key_separator) = match separators.as_deref() {
        None => (item_separator.to_owned(), ": ".to_owned()),
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => return Err(Error::new(ErrorKind::InvalidOperation, "separators are a pair of strings")),
    };
    let mut writer =
        Writer { text: String::new(), ascii, sort_keys, indent, item_separator, key_separator, depth: 0 };
    writer.value(value)?;
    state.consume_fuel(writer.text.len() as u64 / FUEL_PER_BYTE_INVERSE)?;
    Ok(Value::from(writer.text))
}

/// Python's `repr` of a float.
pub(super) fn float_repr(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() {
            "nan"
        } else if value > 0.0 {
            "inf"
        } else {
            "-inf"
        }
        .to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is a small integer");
    if (-4..16).contains(&exponent) {
        return format!("{value:?}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

struct Writer {
    text: String,
    ascii: bool,
    sort_keys: bool,
    indent: Option<usize>,
    item_separator: String,
    key_separator: String,
    depth: usize,
}

impl Writer {
    fn value(&mut self, value: &Value) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => self.text.push_str("null"),
            ValueKind::Bool => self.text.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.text.push_str(&number(value)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.container('[', ']', &items, |writer, item| writer.value(item))?;
            }
            ValueKind::Map => self.map(value)?,
            _ if is_float(value) => self.text.push_str(&number(value)),
            kind => {
                let message = format!("a value of type {kind} cannot be written as JSON");
                return Err(Error::new(ErrorKind::BadSerialization, message));
            }
        }
        Ok(())
    }

    fn map(&mut self, value: &Value) -> Result<(), Error> {
        let mut pairs = Vec::new();
        for key in value.try_iter()? {
            let item = value.get_item(&key)?;
            pairs.push((key_text(&key)?, item));
        }
        if self.sort_keys {
            pairs.sort_by(|left, right| left.0.cmp(&right.0));
        }
        self.container('{', '}', &pairs, |writer, (key, item)| {
            writer.string(key);
            let separator = writer.key_separator.clone();
            writer.text.push_str(&separator);
            writer.value(item)
        })
    }

    fn container<T>(
        &mut self,
        open: char,
        close: char,
        items: &[T],
        write: impl Fn(&mut Self, &T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.depth == DEPTH_MAX {
            return Err(Error::new(ErrorKind::BadSerialization, "the value is nested too deeply"));
        }
        self.text.push(open);
        self.depth += 1;
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                let separator = self.item_separator.clone();
                self.text.push_str(&separator);
            }
            self.line_break();
            write(self, item)?;
        }
        self.depth -= 1;
        if !items.is_empty() {
            self.line_break();
        }
        self.text.push(close);
        Ok(())
    }

    fn line_break(&mut self) {
        if let Some(spaces) = self.indent {
            self.text.push('\n');
            self.text.push_str(&" ".repeat(spaces * self.depth));
        }
    }

    fn string(&mut self, text: &str) {
        let quoted = serde_json::to_string(text).expect("a string is always JSON");
        if !self.ascii {
            self.text.push_str(&quoted);
            return;
        }
        for character in quoted.chars() {
            if character.is_ascii() && character != '\u{7f}' {
                self.text.push(character);
            } else {
                let mut units = [0; 2];
                for unit in character.encode_utf16(&mut units) {
                    self.text.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
}

fn number(value: &Value) -> String {
    match as_float(value) {
        Some(float) => match float_repr(float).as_str() {
            "nan" => "NaN".to_owned(),
            "inf" => "Infinity".to_owned(),
            "-inf" => "-Infinity".to_owned(),
            finite => finite.to_owned(),
        },
        None => value.to_string(),
    }
}

fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::Number => Ok(number(key)),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.to_owned()),
        ValueKind::None => Ok("null".to_owned()),
        kind => Err(Error::new(ErrorKind::BadSerialization, format!("a key of type {kind} is not JSON"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_spelled_as_python_spells_them() {
        // Each right-hand side is what CPython 3.11's repr prints.
        for (value, expected) in [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-2.5e-7, "-2.5e-07"),
            (f64::MAX, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
            (-0.0, "-0.0"),
        ] {
            assert_eq!(float_repr(value), expected);
        }
    }
}
