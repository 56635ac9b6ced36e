//! Python's methods as templates call them: the engine's own set, and those that it lacks and chat templates use.

use minijinja::value::{Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

/// Calls a method that a value itself does not have.
pub(super) fn call(
    state: &mut State,
    value: &Value,
    method: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    match unknown_method_callback(state, value, method, arguments) {
        Err(error) if error.kind() == ErrorKind::UnknownMethod => {}
        known => return known,
    }
    match (value.kind(), value.as_str(), method) {
        (_, Some(text), "index" | "rindex") => {
            let search = if method == "index" { "find" } else { "rfind" };
            let found = unknown_method_callback(state, value, search, arguments)?;
            if found == Value::from(-1) {
                let message = format!("{text:?} does not contain what is searched for");
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
            Ok(found)
        }
        (_, Some(text), _) => string_method(text, method, arguments),
        (ValueKind::Seq, _, "index") => {
            let (wanted,): (&Value,) = from_args(arguments)?;
            let place = value.try_iter()?.position(|item| item == *wanted);
            let missing =
                || Error::new(ErrorKind::InvalidOperation, format!("{wanted:?} is not in the list"));
            place.map(Value::from).ok_or_else(missing)
        }
        (ValueKind::Seq | ValueKind::Map, _, "copy") => {
            from_args::<()>(arguments)?;
            Ok(value.clone())
        }
        _ => Err(ErrorKind::UnknownMethod.into()),
    }
}

fn string_method(text: &str, method: &str, arguments: &[Value]) -> Result<Value, Error> {
    if !matches!(method, "removeprefix" | "removesuffix" | "partition" | "rpartition" | "rsplit") {
        return Err(ErrorKind::UnknownMethod.into());
    }
    if method == "rsplit" {
        let (separator, count_max): (Option<&str>, Option<i64>) = from_args(arguments)?;
        return rsplit(text, separator, count_max.unwrap_or(-1));
    }
    let (part,): (&str,) = from_args(arguments)?;
    let three = |before, between, after| Value::from(Tuple::from([before, between, after].map(Value::from)));
    Ok(match method {
        "removeprefix" => text.strip_prefix(part).unwrap_or(text).into(),
        "removesuffix" => text.strip_suffix(part).unwrap_or(text).into(),
        "partition" => match text.split_once(part) {
            Some((before, after)) => three(before, part, after),
            None => three(text, "", ""),
        },
        _ => match text.rsplit_once(part) {
            Some((before, after)) => three(before, part, after),
            None => three("", "", text),
        },
    })
}

/// At most `count_max` splits from the right; any number if it is negative.
fn rsplit(text: &str, separator: Option<&str>, count_max: i64) -> Result<Value, Error> {
    let parts_max = usize::try_from(count_max).map_or(usize::MAX, |count| count.saturating_add(1));
    let mut parts: Vec<&str> = match separator {
        Some("") => return Err(Error::new(ErrorKind::InvalidOperation, "the separator is empty")),
        Some(separator) => text.rsplitn(parts_max, separator).collect(),
        None if count_max < 0 => text.split_whitespace().rev().collect(),
        None => return Err(Error::new(ErrorKind::InvalidOperation, "rsplit needs a separator to count")),
    };
    parts.reverse();
    Ok(parts.into_iter().map(Value::from).collect())
}
