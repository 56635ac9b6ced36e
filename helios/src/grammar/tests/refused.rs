//! Schemas that are refused, with the place and the reason.

use serde_json::Value;

use super::super::{GrammarError, GrammarSource};
use super::compile;

/// Schema, pointer, and a part of the reason.
const REFUSED: &[(&str, &str, &str)] = &[
    (r#"{"properties":{"x":{"not":{"type":"null"}}}}"#, "/properties/x/not", "keyword not"),
    (r#"{"if":{"type":"null"},"then":true}"#, "/if", "keyword if"),
    (r#"{"items":{"contains":{"const":1}}}"#, "/items/contains", "keyword contains"),
    (r#"{"type":"array","uniqueItems":true}"#, "/uniqueItems", "keyword uniqueItems"),
    (r#"{"propertyNames":{"pattern":"^a"}}"#, "/propertyNames", "keyword"),
    (r#"{"dependentRequired":{"a":["b"]}}"#, "/dependentRequired", "keyword"),
    (r#"{"dependentSchemas":{"a":{}}}"#, "/dependentSchemas", "keyword"),
    (r#"{"dependencies":{"a":["b"]}}"#, "/dependencies", "keyword"),
    (r#"{"anyOf":[{},{"unevaluatedProperties":false}]}"#, "/anyOf/1/unevaluatedProperties", "keyword"),
    (r#"{"unevaluatedItems":false}"#, "/unevaluatedItems", "keyword"),
    (r##"{"$dynamicRef":"#a"}"##, "/$dynamicRef", "keyword"),
    // A draft that does not know the keyword does not make it disappear.
    (
        r#"{"$schema":"http://json-schema.org/draft-04/schema#","contains":{"const":1}}"#,
        "/contains",
        "keyword",
    ),
    (r#"{"type":"string","format":"iri"}"#, "/format", "format \"iri\" is not supported"),
    (r#"{"properties":{"a":{"format":"unknown"}}}"#, "/properties/a/format", "not supported"),
    (r#"{"type":"string","pattern":"a(?=b)"}"#, "/pattern", "look-around"),
    (r#"{"type":"string","pattern":"(a)\\1"}"#, "/pattern", "backreferences"),
    (r#"{"type":"string","pattern":"\\bword\\b"}"#, "/pattern", "word boundaries"),
    (r#"{"type":"string","pattern":"[a&&b]"}"#, "/pattern", "set operators"),
    (r#"{"type":"string","pattern":"[[:alpha:]]"}"#, "/pattern", "brackets"),
    (r#"{"type":"string","pattern":"(?P<stop>a)"}"#, "/pattern", "named stop"),
    (r#"{"type":"string","pattern":"abc\\"}"#, "/pattern", "escape"),
    (r#"{"type":"string","pattern":"\\x01"}"#, "/pattern", "control characters"),
    (r#"{"patternProperties":{"(":true}}"#, "/patternProperties/(", "unclosed group"),
    (r#"{"patternProperties":{"^a":{"type":"null"},"b$":{"const":1}}}"#, "", "not disjoint"),
    (r#"{"properties":{"x":{"oneOf":[{"type":"integer"},{"minimum":3}]}}}"#, "/properties/x", "oneOf"),
    (r#"{"$ref":"https://example.com/s"}"#, "/$ref", "into the schema itself"),
    (r##"{"items":{"$ref":"#/$defs/none"}}"##, "/items/$ref", "no schema at #/$defs/none"),
    (r##"{"$ref":"#/components/a","components":{"a":{}}}"##, "/$ref", "no schema"),
    (r##"{"$defs":{"a/b":{}},"$ref":"#/$defs/a~1b"}"##, "/$ref", "slash"),
    (r##"{"$defs":{"a%b":{}},"$ref":"#/$defs/a%b"}"##, "/$ref", "%25"),
    (
        r##"{"properties":{"a":{"$id":"other","properties":{"b":{"$ref":"#/properties/c"}}}}}"##,
        "/properties/a/properties/b/$ref",
        "$id",
    ),
    (r##"{"$defs":{"a":{"$ref":"#/$defs/a","type":"object"}},"$ref":"#/$defs/a"}"##, "/$defs/a", "circular"),
    (r#"{"type":"object","minProperties":2}"#, "/minProperties", "one more"),
    (r#"{"properties":{"a":{},"b":{},"c":{}},"maxProperties":2}"#, "", "maxProperties"),
    (r#"{"prefixItems":[{}],"additionalItems":false}"#, "/prefixItems", "older forms"),
    (r#"{"const":9007199254740993}"#, "/const", "2^53"),
    (r#"{"type":"integer","minimum":-1e308}"#, "/minimum", "2^53"),
    (r#"{"type":["null","integer"],"exclusiveMaximum":1e19}"#, "/exclusiveMaximum", "2^53"),
    (r#"{"enum":[{"a":[18446744073709551615]}]}"#, "/enum/0/a/0", "2^53"),
    (r#"{"const":"\u0001"}"#, "/const", "control characters"),
    (r#"{"type":"date"}"#, "/type", "not a type"),
    (r#"{"enum":[]}"#, "/enum", "at least one"),
    (r#"{"minLength":-1}"#, "/minLength", "not a count"),
    (r#"{"maxItems":99999999999}"#, "/maxItems", "counts above"),
    (r#"{"minimum":"1"}"#, "/minimum", "not a number"),
    (r#"{"items":5}"#, "/items", "an object or a boolean"),
    (r#"{"required":"a"}"#, "", "required"),
    (r#"{"type":"integer","minimum":5,"maximum":2}"#, "", "Unsatisfiable"),
    (r#"{"type":"object","properties":{"a":false},"required":["a"]}"#, "", "'a' is unsatisfiable"),
    (
        r#"{"type":"object","properties":{"a":{"allOf":[{"type":"string"},{"type":"null"}]}},"required":["a"]}"#,
        "",
        "a",
    ),
    (r#"false"#, "", "nothing is valid"),
    (r#"17"#, "", "an object or a boolean"),
];

#[test]
fn what_cannot_be_enforced_is_refused_by_its_place() {
    assert!(REFUSED.len() >= 20);
    for (text, pointer, part) in REFUSED {
        let schema: Value = serde_json::from_str(text).unwrap();
        match compile(&GrammarSource::JsonSchema(schema)) {
            Err(GrammarError::Schema { pointer: found, reason }) => {
                assert_eq!(found, *pointer, "{text}: {reason}");
                assert!(reason.contains(part), "{text}: {reason}");
            }
            Err(error) => panic!("{text}: {error}"),
            Ok(_) => panic!("{text} was accepted"),
        }
    }
}

#[test]
fn a_message_names_place_and_reason() {
    let schema = serde_json::json!({"properties": {"x": {"not": {}}}});
    let error = compile(&GrammarSource::JsonSchema(schema)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the JSON schema cannot be enforced at /properties/x/not: keyword not is not supported"
    );
}
