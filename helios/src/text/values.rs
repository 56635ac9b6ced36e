//! A request's JSON as values of a template, which print as Python's do.

use std::fmt;
use std::sync::Arc;

use minijinja::Value;
use minijinja::value::{Object, ObjectRepr, ValueKind};
use serde_json::Value as Json;

use super::json::float_repr;

pub(super) fn value_of(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(value), _) => Value::from(value),
            (_, Some(value)) => Value::from(value),
            _ => float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::from(items.iter().map(value_of).collect::<Vec<Value>>()),
        Json::Object(fields) => {
            Value::from_pairs(fields.iter().map(|(key, item)| (key.as_str(), value_of(item))))
        }
    }
}

/// The number of a value that is one and no integer.
pub(super) fn as_float(value: &Value) -> Option<f64> {
    match value.downcast_object_ref() {
        Some(ExponentFloat(number)) => Some(*number),
        None if value.kind() == ValueKind::Number && !value.is_integer() => f64::try_from(value.clone()).ok(),
        None => None,
    }
}

pub(super) fn is_float(value: &Value) -> bool {
    as_float(value).is_some()
}

pub(super) fn is_number(value: &Value) -> bool {
    is_float(value) || matches!(value.kind(), ValueKind::Number | ValueKind::Bool)
}

fn float(number: f64) -> Value {
    if float_repr(number).contains('e') {
        Value::from_object(ExponentFloat(number))
    } else {
        Value::from(number)
    }
}

/// A number that the engine spells in another way than Python wherever it prints it. Templates print arguments of
/// tools and do not calculate with them, which this is not made for.
#[derive(Debug)]
struct ExponentFloat(f64);

impl Object for ExponentFloat {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&float_repr(self.0))
    }
}
