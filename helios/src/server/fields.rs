//! Typed reading of a request's JSON object.
//!
//! Unknown fields are not looked at and `null` is the same as absent. Each error names the field by its path from the
//! body's root, as OpenAI does (`messages[2].content`).

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::error::{ApiError, ErrorCode};
use crate::ids::TokenId;

/// One JSON object and where it is in the body.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    object: &'a Map<String, Value>,
    path: String,
}

impl<'a> Fields<'a> {
    /// The body itself.
    pub fn root(body: &'a Value) -> Result<Self, ApiError> {
        let object = body.as_object().ok_or_else(|| {
            let message = format!("The body must be a JSON object, but it is {}.", kind(body));
            ApiError::new(ErrorCode::InvalidType, message)
        })?;
        Ok(Self { object, path: String::new() })
    }

    /// An object at a path.
    pub fn at(value: &'a Value, path: String) -> Result<Self, ApiError> {
        match value.as_object() {
            Some(object) => Ok(Self { object, path }),
            None => Err(wrong_type(&path, "an object", value)),
        }
    }

    /// A field's path from the root.
    pub fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// A field's value; `None` if it is absent or null.
    pub fn get(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// The object itself.
    pub fn object_map(&self) -> &'a Map<String, Value> {
        self.object
    }

    pub fn string(&self, name: &str) -> Result<Option<&'a str>, ApiError> {
        self.typed(name, "a string", Value::as_str)
    }

    /// A string that must be there.
    pub fn required(&self, name: &str) -> Result<&'a str, ApiError> {
        self.string(name)?.ok_or_else(|| missing(&self.path(name)))
    }

    pub fn boolean(&self, name: &str) -> Result<Option<bool>, ApiError> {
        self.typed(name, "a boolean", Value::as_bool)
    }

    pub fn array(&self, name: &str) -> Result<Option<&'a [Value]>, ApiError> {
        self.typed(name, "an array", |value| value.as_array().map(Vec::as_slice))
    }

    /// An array of at most `count_max` entries.
    pub fn array_within(&self, name: &str, count_max: usize) -> Result<Option<&'a [Value]>, ApiError> {
        let array = self.array(name)?;
        match array.map(<[Value]>::len).filter(|&count| count > count_max) {
            None => Ok(array),
            Some(count) => {
                Err(invalid(&self.path(name), &format!("{count} entries exceed the limit of {count_max}")))
            }
        }
    }

    pub fn object(&self, name: &str) -> Result<Option<Self>, ApiError> {
        self.get(name).map(|value| Self::at(value, self.path(name))).transpose()
    }

    /// An integer within `range`.
    pub fn integer(&self, name: &str, range: RangeInclusive<i64>) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let path = self.path(name);
        if !value.is_i64() && !value.is_u64() {
            return Err(wrong_type(&path, "an integer", value));
        }
        match value.as_i64().filter(|integer| range.contains(integer)) {
            Some(integer) => Ok(Some(integer)),
            None => Err(out_of_range(&path, value, range.start(), range.end())),
        }
    }

    /// A number within `range`.
    pub fn number(&self, name: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, ApiError> {
        let Some(number) = self.typed(name, "a number", Value::as_f64)? else { return Ok(None) };
        if range.contains(&number) {
            return Ok(Some(number));
        }
        Err(out_of_range(&self.path(name), number, range.start(), range.end()))
    }

    fn typed<T>(
        &self,
        name: &str,
        expected: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        self.get(name)
            .map(|value| read(value).ok_or_else(|| wrong_type(&self.path(name), expected, value)))
            .transpose()
    }
}

/// The error for a value of another type than `expected`.
pub fn wrong_type(path: &str, expected: &str, value: &Value) -> ApiError {
    let message = format!("Invalid type for '{path}': expected {expected}, but got {}.", kind(value));
    ApiError::of(ErrorCode::InvalidType, path, message)
}

/// The error for a value that is out of its range.
pub fn invalid(path: &str, requirement: &str) -> ApiError {
    ApiError::of(ErrorCode::InvalidValue, path, format!("Invalid value for '{path}': {requirement}."))
}

/// The error for a field that must be there.
pub fn missing(path: &str) -> ApiError {
    ApiError::of(ErrorCode::MissingParameter, path, format!("Missing required parameter: '{path}'."))
}

/// The error for a field that this server or model cannot honour.
pub fn unsupported(path: &str, reason: &str) -> ApiError {
    ApiError::of(ErrorCode::UnsupportedParameter, path, format!("Unsupported parameter '{path}': {reason}."))
}

/// A token id below `vocabulary`; `expected` says what else the field takes.
///
/// # Errors
/// A 400 that names the field.
pub fn token_id(id: &Value, vocabulary: u32, path: &str, expected: &str) -> Result<TokenId, ApiError> {
    if !id.is_i64() && !id.is_u64() {
        return Err(wrong_type(path, expected, id));
    }
    let token = id.as_u64().and_then(|id| u32::try_from(id).ok()).filter(|&id| id < vocabulary);
    token.map(TokenId).ok_or_else(|| invalid(path, &format!("{id} is not a token id below {vocabulary}")))
}

fn out_of_range<T: std::fmt::Display>(
    path: &str,
    value: impl std::fmt::Display,
    low: T,
    high: T,
) -> ApiError {
    invalid(path, &format!("{value} is not between {low} and {high}"))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a decimal",
        Value::Number(_) => "an integer",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
