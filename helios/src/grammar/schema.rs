//! JSON Schema as llguidance enforces it.
//!
//! llguidance skips keywords that a schema's declared draft does not know, lets a schema relax its own enforcement, and is loose in
//! some corners. [`checked`] walks the schema first: it refuses what would not be enforced, with a pointer, and rewrites
//! what is enforced only in another form. Dialects are drafts 4 to 2020-12, read as the latest. Keywords that are in none
//! of them are annotations, as the standard has it.

use std::collections::HashSet;

use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar};
use serde_json::{Map, Value, json};

use super::formats::{self, Format, format};
use super::pattern::{enforceable, is_writable};
use super::{GrammarError, reason_of};

/// A schema that llguidance enforces as it stands.
#[derive(Debug)]
pub(super) struct Checked {
    pub schema: Value,
    /// Pointers of all its schemas, each behind the one that holds it.
    pointers: Vec<String>,
}

const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];
const UNSUPPORTED: [&str; 20] = [
    "$dynamicAnchor",
    "$dynamicRef",
    "$recursiveAnchor",
    "$recursiveRef",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "extends",
    "if",
    "maxContains",
    "minContains",
    "not",
    "propertyNames",
    "then",
    "disallow",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
];
/// Applied behind all others: llguidance reads keywords that belong together, such as `properties` and
/// `additionalProperties`, only as far as none of these stands between them.
const APPLICATORS: [&str; 6] = ["const", "enum", "allOf", "anyOf", "oneOf", "$ref"];

const DEPTH_MAX: usize = 128;
/// Repetitions of an expression are counted in 32 bits.
const COUNT_MAX: u64 = i32::MAX as u64;
/// Integers above it have neighbours that a double cannot tell apart.
const NUMBER_LIMITS: [&str; 5] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];
const INTEGER_MAX: f64 = 9_007_199_254_740_991.0;
const BLANK_BYTES_MAX: usize = 64;

/// The schema in the form that is enforced.
///
/// # Errors
/// [`GrammarError::Schema`] at the first keyword that would not be.
pub(super) fn checked(schema: &Value) -> Result<Checked, GrammarError> {
    let mut walk = Walk::default();
    let mut checked = match walk.schema(schema, "", Place::default())? {
        Value::Bool(true) => json!({}),
        Value::Bool(false) => return Err(refuse("", "nothing is valid against it")),
        schema => schema,
    };
    let known: HashSet<&str> = walk.pointers.iter().map(String::as_str).collect();
    for (pointer, target) in &walk.references {
        if !known.contains(target.as_str()) {
            return Err(refuse(pointer, format!("there is no schema at #{target}")));
        }
    }
    if let Some(root) = checked.as_object_mut() {
        root.insert("x-guidance".to_owned(), options());
    }
    Ok(Checked { schema: checked, pointers: walk.pointers })
}

/// The error for a schema that llguidance refuses although it passed the checks, at the innermost place that it refuses by itself.
pub(super) fn refusal(schema: &Value, reason: &str) -> GrammarError {
    let pointer = checked(schema).ok().and_then(|checked| checked.innermost_refused(reason));
    let reason = if reason.contains("oneOf constraints are not supported") {
        "the options of oneOf do not exclude each other in a way that can be enforced; use anyOf".to_owned()
    } else {
        reason.to_owned()
    };
    GrammarError::Schema { pointer: pointer.unwrap_or_default(), reason }
}

/// How JSON text may be written.
fn options() -> Value {
    json!({
        // Models can lose themselves in white space.
        "whitespace_pattern": format!("[\\x20\\x0A\\x0D\\x09]{{1,{BLANK_BYTES_MAX}}}"),
        // With \u, a name that is declared could be spelled in another way, and have any value.
        "json_allowed_escapes": "nrbtf\\\"",
    })
}

fn refuse(pointer: &str, reason: impl Into<String>) -> GrammarError {
    GrammarError::Schema { pointer: pointer.to_owned(), reason: reason.into() }
}

fn below(pointer: &str, key: &str) -> String {
    format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
}

impl Checked {
    /// Pointers that are tried, and bytes of the schemas that they are tried on: refusing must stay cheap.
    const TRIES_MAX: usize = 64;
    const TRIED_BYTES_MAX: usize = 16 << 10;

    fn innermost_refused(&self, reason: &str) -> Option<String> {
        if self.schema.to_string().len() > Self::TRIED_BYTES_MAX {
            return None;
        }
        // Inner schemas stand behind outer ones.
        let found = self.pointers.iter().rev().take(Self::TRIES_MAX).find(|pointer| {
            self.schema.pointer(pointer).is_some_and(|schema| self.refused_with(schema, reason))
        });
        found.cloned()
    }

    fn refused_with(&self, schema: &Value, reason: &str) -> bool {
        let Value::Object(schema) = schema else { return false };
        let mut schema = schema.clone();
        for key in ["$defs", "definitions"] {
            if let Some(definitions) = self.schema.get(key) {
                schema.entry(key).or_insert_with(|| definitions.clone());
            }
        }
        let grammar = TopLevelGrammar::from_json_schema(Value::Object(schema));
        let result = GrammarInit::Serialized(grammar).to_internal(None, ParserLimits::default());
        result.is_err_and(|error| reason_of(&error.to_string()) == reason)
    }
}

/// Where in the document the walk is.
#[derive(Clone, Copy, Default)]
struct Place {
    depth: usize,
    /// An enclosing schema changes what references are relative to.
    rebased: bool,
}

#[derive(Default)]
struct Walk {
    pointers: Vec<String>,
    /// Where references stand, and what they point to.
    references: Vec<(String, String)>,
}

impl Walk {
    fn schema(&mut self, schema: &Value, pointer: &str, place: Place) -> Result<Value, GrammarError> {
        self.pointers.push(pointer.to_owned());
        let keywords = match schema {
            Value::Bool(_) => return Ok(schema.clone()),
            Value::Object(keywords) => keywords,
            _ => return Err(refuse(pointer, "a schema is an object or a boolean")),
        };
        if place.depth == DEPTH_MAX {
            return Err(refuse(pointer, format!("schemas nest deeper than {DEPTH_MAX}")));
        }
        let moves =
            |key: &str| keywords.get(key).and_then(Value::as_str).is_some_and(|id| !id.starts_with('#'));
        let rebased = place.rebased || place.depth > 0 && (moves("$id") || moves("id"));
        let place = Place { depth: place.depth + 1, rebased };

        let mut result = Map::new();
        let mut applicators = Map::new();
        for (key, value) in keywords {
            let at = below(pointer, key);
            if UNSUPPORTED.contains(&key.as_str()) {
                return Err(refuse(&at, format!("keyword {key} is not supported")));
            }
            let Some(value) = self.keyword(key, value, &at, place)? else { continue };
            let is_applicator = APPLICATORS.contains(&key.as_str());
            let into = if is_applicator { &mut applicators } else { &mut result };
            into.insert(key.clone(), value);
        }
        check_together(keywords, pointer)?;
        apply_format(&mut result, &mut applicators, pointer)?;
        result.append(&mut applicators);
        Ok(Value::Object(result))
    }

    /// The keyword's value as it is enforced, or none for an annotation.
    fn keyword(
        &mut self,
        key: &str,
        value: &Value,
        at: &str,
        place: Place,
    ) -> Result<Option<Value>, GrammarError> {
        let enforced = match key {
            "properties" | "$defs" | "definitions" => {
                self.map(value, at, place, |name, _| Ok(name.to_owned()))?
            }
            "patternProperties" => {
                self.map(value, at, place, |pattern, at| check_pattern(&Value::from(pattern), at))?
            }
            "items" if value.is_array() => self.list(value, at, place)?,
            "items" | "additionalItems" | "additionalProperties" => self.schema(value, at, place)?,
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => self.list(value, at, place)?,
            "$ref" => self.reference(value, at, place)?,
            "type" => check_type(value, at)?,
            "const" => check_literal(value, at)?,
            "enum" => match value.as_array() {
                Some(values) if !values.is_empty() => check_literal(value, at)?,
                _ => return Err(refuse(at, "enum is a list of at least one value")),
            },
            "pattern" => Value::from(check_pattern(value, at)?),
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => {
                check_number(value, at)?
            }
            "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
                check_count(value, at)?
            }
            "required" | "format" => value.clone(),
            _ => return Ok(None),
        };
        Ok(Some(enforced))
    }

    fn map(
        &mut self,
        value: &Value,
        at: &str,
        place: Place,
        name: impl Fn(&str, &str) -> Result<String, GrammarError>,
    ) -> Result<Value, GrammarError> {
        let schemas = value.as_object().ok_or_else(|| refuse(at, "it is not an object of schemas"))?;
        let mut result = Map::new();
        for (key, schema) in schemas {
            let at = below(at, key);
            result.insert(name(key, &at)?, self.schema(schema, &at, place)?);
        }
        Ok(Value::Object(result))
    }

    fn list(&mut self, value: &Value, at: &str, place: Place) -> Result<Value, GrammarError> {
        let schemas = value.as_array().ok_or_else(|| refuse(at, "it is not a list of schemas"))?;
        let schemas = schemas.iter().enumerate();
        schemas.map(|(index, schema)| self.schema(schema, &format!("{at}/{index}"), place)).collect()
    }

    fn reference(&mut self, value: &Value, at: &str, place: Place) -> Result<Value, GrammarError> {
        let target = value.as_str().and_then(|reference| reference.strip_prefix('#'));
        let target = target.map(|target| if target == "/" { "" } else { target });
        let Some(target) = target.filter(|target| target.is_empty() || target.starts_with('/')) else {
            return Err(refuse(at, "only references into the schema itself (#/...) are supported"));
        };
        if place.rebased {
            return Err(refuse(at, "references below an $id of their own are not supported"));
        }
        let pointer = decoded(target).ok_or_else(|| refuse(at, "a percent sign is written %25"))?;
        let names: Vec<String> =
            pointer.split('/').map(|name| name.replace("~1", "/").replace("~0", "~")).collect();
        if names.iter().any(|name| name.contains('/')) {
            return Err(refuse(at, "references by a name with a slash are not supported"));
        }
        self.references.push((at.to_owned(), pointer));
        // llguidance takes names as they are.
        Ok(Value::from(format!("#{}", names.join("/"))))
    }
}

/// The text that a part of an address stands for; none if its escapes are malformed.
fn decoded(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let [first, following @ ..] = rest {
        rest = following;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = rest.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
        let digits = str::from_utf8(digits).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

fn check_type(value: &Value, at: &str) -> Result<Value, GrammarError> {
    let one = std::slice::from_ref(value);
    let names = value.as_array().map_or(one, Vec::as_slice);
    for name in names {
        if !name.as_str().is_some_and(|name| TYPES.contains(&name)) {
            return Err(refuse(at, format!("{name} is not a type")));
        }
    }
    if names.is_empty() { Err(refuse(at, "the list of types is empty")) } else { Ok(value.clone()) }
}

/// A value that the answer may have to spell out.
fn check_literal(value: &Value, at: &str) -> Result<Value, GrammarError> {
    match value {
        Value::Number(_) => return check_number(value, at),
        Value::String(text) if !text.chars().all(is_writable) => {
            return Err(refuse(at, "control characters in literal values are not supported"));
        }
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                check_literal(value, &format!("{at}/{index}"))?;
            }
        }
        Value::Object(values) => {
            for (key, value) in values {
                check_literal(value, &below(at, key))?;
            }
        }
        _ => {}
    }
    Ok(value.clone())
}

fn check_number(value: &Value, at: &str) -> Result<Value, GrammarError> {
    // Draft 4 has booleans for exclusive bounds.
    let exact = value.is_boolean() && at.contains("/exclusive")
        || value
            .as_f64()
            .is_some_and(|number| !value.is_f64() && number.abs() <= INTEGER_MAX || value.is_f64());
    if exact {
        return Ok(value.clone());
    }
    let reason =
        if value.is_number() { "integers beyond 2^53 are not supported" } else { "it is not a number" };
    Err(refuse(at, reason))
}

fn check_count(value: &Value, at: &str) -> Result<Value, GrammarError> {
    // A count may be written as 2.0.
    let count = value.as_u64().or_else(|| {
        value.as_f64().filter(|count| count.fract() == 0.0 && *count >= 0.0).map(|count| count as u64)
    });
    match count {
        Some(count) if count <= COUNT_MAX => Ok(Value::from(count)),
        Some(_) => Err(refuse(at, format!("counts above {COUNT_MAX} are not supported"))),
        None => Err(refuse(at, "it is not a count")),
    }
}

fn check_pattern(value: &Value, at: &str) -> Result<String, GrammarError> {
    let pattern = value.as_str().ok_or_else(|| refuse(at, "a pattern is a string"))?;
    enforceable(pattern).map_err(|reason| refuse(at, reason))
}

/// Keywords that are enforced by themselves, but not together.
fn check_together(keywords: &Map<String, Value>, pointer: &str) -> Result<(), GrammarError> {
    if has_type(keywords, "integer") {
        // llguidance makes 64-bit integers of them, which do not hold what a float may say.
        let is_beyond = |name: &str| {
            let number = keywords.get(name).and_then(Value::as_f64);
            number.is_some_and(|number| number.abs() > INTEGER_MAX)
        };
        if let Some(name) = NUMBER_LIMITS.into_iter().find(|name| is_beyond(name)) {
            return Err(refuse(&below(pointer, name), "integers beyond 2^53 are not supported"));
        }
    }
    if keywords.contains_key("prefixItems") {
        let old_items = keywords.get("items").is_some_and(Value::is_array);
        if old_items || keywords.contains_key("additionalItems") {
            let reason = "prefixItems is not supported beside the older forms of items";
            return Err(refuse(&below(pointer, "prefixItems"), reason));
        }
    }
    if let Some(minimum) = keywords.get("minProperties").and_then(Value::as_u64) {
        let required = keywords.get("required").and_then(Value::as_array).map_or(0, Vec::len);
        // Names that are not declared may repeat, and then count once.
        if minimum > required as u64 + 1 {
            let reason = "minProperties is supported up to one more than the properties in required";
            return Err(refuse(&below(pointer, "minProperties"), reason));
        }
    }
    Ok(())
}

/// Whether a schema's `type` names a type, alone or among others.
fn has_type(keywords: &Map<String, Value>, wanted: &str) -> bool {
    match keywords.get("type") {
        Some(Value::Array(types)) => types.iter().any(|name| name == wanted),
        found => found.is_some_and(|name| name == wanted),
    }
}

/// Adds what a format asks beyond llguidance's expression. Where no string is allowed, a format says nothing.
fn apply_format(
    keywords: &mut Map<String, Value>,
    applicators: &mut Map<String, Value>,
    pointer: &str,
) -> Result<(), GrammarError> {
    let Some(name) = keywords.get("format") else { return Ok(()) };
    if keywords.contains_key("type") && !has_type(keywords, "string") {
        keywords.shift_remove("format");
        return Ok(());
    }
    let Some(found) = name.as_str().and_then(format) else {
        let reason = format!("format {name} is not supported; supported are {}", formats::NAMES);
        return Err(refuse(&below(pointer, "format"), reason));
    };
    let patterns = match &found {
        Format::Plain => return Ok(()),
        Format::Tightened(patterns) => *patterns,
        Format::Replaced(pattern) => std::slice::from_ref(pattern),
    };
    if matches!(found, Format::Replaced(_)) {
        keywords.shift_remove("format");
    }
    let all = applicators.entry("allOf").or_insert_with(|| json!([]));
    let all = all.as_array_mut().expect("the list was walked as one");
    all.extend(patterns.iter().map(|pattern| json!({ "pattern": pattern })));
    Ok(())
}
