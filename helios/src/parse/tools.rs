//! The tools that a request declares, and the JSON values that their schemas make of plain text.

use serde_json::Value;

/// A declared tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    pub name: String,
    /// JSON schema of the arguments; null where none was given.
    pub parameters: Value,
}

/// A request's tools. None at all means that no text is a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tools(Vec<Tool>);

/// How a parameter's text becomes a JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    /// The text itself is a string.
    Text,
    /// As `Text`; `null` alone is null.
    NullableText,
    /// The schema wants something else than a string.
    Json,
    /// The schema does not say.
    Undeclared,
}

impl Tools {
    pub fn new(tools: Vec<Tool>) -> Self {
        Self(tools)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names of all tools.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|tool| tool.name.as_str())
    }

    /// The declared tool of a name.
    pub fn find(&self, name: &str) -> Option<&Tool> {
        self.0.iter().find(|tool| tool.name == name)
    }
}

impl Tool {
    /// How the text of a parameter is read.
    pub(super) fn value_kind(&self, parameter: &str) -> ValueKind {
        let mut types = Vec::new();
        if let Some(schema) = self.parameters.get("properties").and_then(|all| all.get(parameter)) {
            collect_types(schema, &mut types, 0);
        }
        let nullable = types.contains(&"null");
        types.retain(|&name| name != "null");
        match (types.as_slice(), nullable) {
            ([], true) => ValueKind::Json,
            ([], false) => ValueKind::Undeclared,
            (some, true) if some.contains(&"string") => ValueKind::NullableText,
            (some, false) if some.contains(&"string") => ValueKind::Text,
            _ => ValueKind::Json,
        }
    }
}

impl ValueKind {
    /// The JSON text of a parameter's whole text. What does not fit the schema is a string: the tool knows better what to
    /// answer than we know what was meant.
    pub(super) fn json(self, text: &str) -> String {
        let trimmed = text.trim();
        let is_null = matches!(trimmed, "null" | "None");
        match self {
            Self::NullableText | Self::Json if is_null => "null".to_owned(),
            Self::Text | Self::NullableText => quoted(text),
            Self::Json if trimmed.eq_ignore_ascii_case("true") => "true".to_owned(),
            Self::Json if trimmed.eq_ignore_ascii_case("false") => "false".to_owned(),
            Self::Json | Self::Undeclared => match serde_json::from_str::<Value>(trimmed) {
                Ok(_) => trimmed.to_owned(),
                Err(_) => quoted(text),
            },
        }
    }
}

/// A JSON string of a text.
pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// The inside of a JSON string of a text.
pub(super) fn escaped(text: &str) -> String {
    let quoted = quoted(text);
    quoted[1..quoted.len() - 1].to_owned()
}

/// Alternatives nest no deeper in any schema that is meant for a model.
const ALTERNATIVES_DEPTH_MAX: usize = 8;

/// The names of the types that a schema admits, as far as it states them.
fn collect_types<'a>(schema: &'a Value, types: &mut Vec<&'a str>, depth: usize) {
    if depth > ALTERNATIVES_DEPTH_MAX {
        return;
    }
    match schema.get("type") {
        Some(Value::String(name)) => types.push(name),
        Some(Value::Array(names)) => types.extend(names.iter().filter_map(Value::as_str)),
        _ => {
            let constants = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
            for constant in constants.chain(schema.get("const")) {
                types.push(type_name(constant));
            }
        }
    }
    for alternatives in ["anyOf", "oneOf", "allOf"] {
        for one in schema.get(alternatives).and_then(Value::as_array).into_iter().flatten() {
            collect_types(one, types, depth + 1);
        }
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_says_how_text_is_read() {
        let tool = Tool {
            name: "f".to_owned(),
            parameters: json!({"properties": {
                "text": {"type": "string"},
                "perhaps": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "count": {"type": ["integer", "null"]},
                "choice": {"enum": ["a", "b"]},
                "anything": {},
            }}),
        };
        let read = |parameter: &str, text: &str| tool.value_kind(parameter).json(text);
        assert_eq!(read("text", "5"), r#""5""#);
        assert_eq!(read("text", " null\n"), r#"" null\n""#);
        assert_eq!(read("perhaps", "None"), "null");
        assert_eq!(read("perhaps", "5"), r#""5""#);
        assert_eq!(read("count", " 5 "), "5");
        assert_eq!(read("count", "null"), "null");
        assert_eq!(read("count", "True"), "true");
        assert_eq!(read("count", "many"), r#""many""#);
        assert_eq!(read("choice", "1"), r#""1""#);
        assert_eq!(read("anything", "[1, {}]"), "[1, {}]");
        assert_eq!(read("unheard", "plain \"text\""), r#""plain \"text\"""#);
    }
}
