//! Schemas that are enforced: whatever is generated under them is valid to another implementation.

use serde_json::Value;

use super::super::GrammarSource;
use super::compile;
use super::walk::walk_text;

/// Walks of each schema. `FLARE_WALK_SEEDS` asks for more, from 0 on.
fn seeds() -> std::ops::Range<u64> {
    let asked = std::env::var("FLARE_WALK_SEEDS").ok();
    0..asked.map_or(8, |seeds| seeds.parse().expect("FLARE_WALK_SEEDS is a count"))
}

const SCHEMAS: &[&str] = &[
    // Types.
    r#"{"type":"null"}"#,
    r#"{"type":"boolean"}"#,
    r#"{"type":"integer"}"#,
    r#"{"type":"number"}"#,
    r#"{"type":"string"}"#,
    r#"{"type":"array"}"#,
    r#"{"type":"object"}"#,
    r#"{"type":["string","null"]}"#,
    r#"{"type":["integer","array","boolean"],"items":{"type":"null"}}"#,
    r#"{}"#,
    r#"true"#,
    // Literals.
    r#"{"const":"a \"quoted\" \\ text\n"}"#,
    r#"{"const":{"a":[1,null,true,{"b":"é"}]}}"#,
    r#"{"enum":["red","amber","green"]}"#,
    r#"{"enum":[1,2.5,null,false,[1,2],{"k":"v"}]}"#,
    r#"{"type":"integer","enum":[1,"two",3]}"#,
    r#"{"const":-0.25}"#,
    r#"{"const":9007199254740991}"#,
    // Numbers.
    r#"{"type":"integer","minimum":-5,"maximum":17}"#,
    r#"{"type":"integer","exclusiveMinimum":0,"exclusiveMaximum":1000}"#,
    r#"{"type":"number","minimum":-1.5,"maximum":2.25}"#,
    r#"{"type":"number","exclusiveMinimum":0,"maximum":1}"#,
    r#"{"type":"integer","minimum":-90000,"maximum":90000,"multipleOf":7}"#,
    r#"{"type":"number","multipleOf":0.25,"minimum":0,"maximum":100}"#,
    r#"{"$schema":"http://json-schema.org/draft-04/schema#","type":"integer","minimum":3,"exclusiveMinimum":true,"maximum":9}"#,
    // Strings.
    r#"{"type":"string","minLength":3,"maxLength":5}"#,
    r#"{"type":"string","maxLength":0}"#,
    r#"{"type":"string","pattern":"^[A-Z]{2}-\\d{3,4}$"}"#,
    r#"{"type":"string","pattern":"ab+c","maxLength":20}"#,
    r#"{"type":"string","pattern":"^(foo|ba[rz])+$","minLength":6}"#,
    r#"{"type":"string","pattern":"^\"[^\"\\\\]{1,9}\"$"}"#,
    r#"{"type":"string","pattern":"^[^\"]{1,9}$"}"#,
    r#"{"type":"string","pattern":"^[^\\\\]{1,9}$"}"#,
    r#"{"type":"string","pattern":"^[^\n\"]{1,9}\\s[^\\d]\\S$"}"#,
    r#"{"type":"string","pattern":"(^a|b$)","maxLength":6}"#,
    r#"{"type":"object","patternProperties":{"^[^\"]$":{"const":1}},"additionalProperties":{"const":2}}"#,
    r#"{"type":"string","format":"date"}"#,
    r#"{"type":"string","format":"time"}"#,
    r#"{"type":"string","format":"date-time"}"#,
    r#"{"type":"string","format":"duration"}"#,
    r#"{"type":"string","format":"email"}"#,
    r#"{"type":"string","format":"hostname"}"#,
    r#"{"type":"string","format":"ipv4"}"#,
    r#"{"type":"string","format":"ipv6"}"#,
    r#"{"type":"string","format":"uri"}"#,
    r#"{"type":"string","format":"uuid"}"#,
    r#"{"type":["string","null"],"format":"date","pattern":"^20"}"#,
    r#"{"type":"integer","format":"int32","minimum":0,"maximum":9}"#,
    // Arrays.
    r#"{"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":4}"#,
    r#"{"type":"array","prefixItems":[{"type":"string"},{"type":"integer"}],"items":false}"#,
    r#"{"type":"array","prefixItems":[{"const":1},{"const":2}],"items":{"type":"boolean"},"minItems":3,"maxItems":5}"#,
    r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"array","items":[{"type":"null"},{"type":"boolean"}],"additionalItems":false}"#,
    r#"{"type":"array","items":[{"type":"integer"}],"allOf":[{"minItems":1}],"additionalItems":{"type":"null"},"$schema":"http://json-schema.org/draft-07/schema#"}"#,
    r#"{"type":"array","items":{"type":"array","items":{"type":"array","items":{"const":0},"maxItems":2},"maxItems":2},"maxItems":2}"#,
    r#"{"type":"array","maxItems":0}"#,
    // Objects.
    r#"{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["a"]}"#,
    r#"{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["a","b"],"additionalProperties":false}"#,
    r#"{"type":"object","properties":{"\"q\"":{"const":1},"é/~":{"const":2}},"required":["\"q\"","é/~"],"additionalProperties":false}"#,
    r#"{"type":"object","additionalProperties":{"type":"boolean"},"minProperties":1,"maxProperties":3}"#,
    r#"{"type":"object","patternProperties":{"^x_":{"type":"integer"},"^y_":{"type":"null"}},"additionalProperties":false}"#,
    r#"{"type":"object","properties":{"x_1":{"minimum":5}},"patternProperties":{"^x_":{"type":"integer"}},"additionalProperties":{"type":"string"},"required":["x_1"]}"#,
    r#"{"type":"object","required":["undeclared"],"additionalProperties":{"type":"integer"}}"#,
    r#"{"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}},"additionalProperties":false,"minProperties":1}"#,
    r#"{"type":"object","properties":{"never":false,"may":true},"additionalProperties":false}"#,
    r#"{"properties":{"a":{"type":"integer"}},"anyOf":[{"required":["a"]},{"type":"null"}],"additionalProperties":false}"#,
    // Combinations.
    r#"{"anyOf":[{"type":"integer"},{"type":"string","maxLength":4},{"type":"null"}]}"#,
    r#"{"oneOf":[{"type":"integer"},{"type":"string"}]}"#,
    r#"{"oneOf":[{"type":"object","properties":{"kind":{"const":"a"},"n":{"type":"integer"}},"required":["kind","n"],"additionalProperties":false},{"type":"object","properties":{"kind":{"const":"b"}},"required":["kind"],"additionalProperties":false}]}"#,
    r#"{"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"b":{"type":"boolean"}},"required":["b"]}]}"#,
    r#"{"allOf":[{"minimum":3},{"maximum":8}],"type":"integer"}"#,
    r#"{"type":"string","anyOf":[{"pattern":"^a"},{"pattern":"z$"}],"maxLength":6}"#,
    // References.
    r##"{"$defs":{"id":{"type":"integer","minimum":1}},"type":"array","items":{"$ref":"#/$defs/id"},"minItems":1}"##,
    r##"{"definitions":{"node":{"type":"object","properties":{"value":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/definitions/node"},{"type":"null"}]}},"required":["value","next"],"additionalProperties":false}},"$ref":"#/definitions/node"}"##,
    r##"{"type":"object","properties":{"name":{"type":"string"},"parts":{"type":"array","items":{"$ref":"#"}}},"required":["name"],"additionalProperties":false}"##,
    r##"{"properties":{"a":{"type":"integer"},"b":{"$ref":"#/properties/a"}},"type":"object","required":["b"],"additionalProperties":false}"##,
    r##"{"$defs":{"s":{"type":"string"}},"type":"object","properties":{"a":{"$ref":"#/$defs/s","maxLength":3,"description":"short"}},"required":["a"]}"##,
    r##"{"$defs":{"~b %\"é":{"type":"integer"}},"type":"array","items":{"$ref":"#/%24defs/~0b%20%25%22%C3%A9"},"minItems":1}"##,
    // Annotations and keywords of nobody's.
    r#"{"title":"t","description":"d","default":5,"examples":[1],"deprecated":true,"readOnly":true,"$comment":"c","x-order":1,"discriminator":{"propertyName":"k"},"type":"integer"}"#,
    r#"{"x-guidance":{"lenient":true,"coerce_one_of":true},"type":"string","maxLength":2}"#,
    r#"{"$id":"https://example.com/s","$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"not":{"const":1},"if":{"const":2}},"required":["not"],"additionalProperties":false}"#,
    // A tool's arguments as agents declare them.
    r#"{"type":"object","properties":{"command":{"type":"string","description":"run it"},"timeout_ms":{"type":"integer","minimum":0,"maximum":600000},"env":{"type":"object","additionalProperties":{"type":"string"}},"mode":{"enum":["fast","safe"]},"paths":{"type":"array","items":{"type":"string"},"maxItems":3}},"required":["command","mode"],"additionalProperties":false}"#,
];

#[test]
fn what_is_generated_is_valid_to_another_implementation() {
    assert!(SCHEMAS.len() >= 60);
    let mut texts = std::collections::BTreeSet::new();
    for schema in SCHEMAS {
        let schema: Value = serde_json::from_str(schema).unwrap();
        let start = compile(&GrammarSource::JsonSchema(schema.clone()))
            .unwrap_or_else(|error| panic!("{schema}: {error}"));
        let validator = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
        for seed in seeds() {
            let text = walk_text(&start, seed);
            let Some(value) = read(&text) else { continue };
            if let Err(error) = validator.validate(&value) {
                panic!("{schema}, seed {seed}: {error} in {text}");
            }
            texts.insert(text);
        }
    }
    assert!(texts.len() > SCHEMAS.len() * 4, "only {} different texts", texts.len());
}

/// The text's value, or none if it holds a number that JSON has and the reader has not.
fn read(text: &str) -> Option<Value> {
    match serde_json::from_str(text) {
        Ok(value) => Some(value),
        Err(error) if error.to_string().starts_with("number out of range") => None,
        Err(error) => panic!("{error} in {text:?}"),
    }
}

#[test]
fn a_json_object_is_any_object() {
    let start = compile(&GrammarSource::JsonObject).unwrap();
    let mut members = 0;
    for seed in 0..64 {
        let text = walk_text(&start, seed);
        let Some(value) = read(&text) else { continue };
        members += value.as_object().unwrap_or_else(|| panic!("{text} is no object")).len();
    }
    assert!(members > 0);
}

#[test]
fn a_declared_name_cannot_be_spelled_in_another_way() {
    let schema = serde_json::json!({"type": "object", "properties": {"a": {"const": 1}}});
    let mut constraint = compile(&GrammarSource::JsonSchema(schema)).unwrap();
    let mut mask = vec![0; constraint.mask_words()];
    for byte in br#"{""# {
        constraint.mask(&mut mask).unwrap();
        constraint.accept(crate::ids::TokenId(u32::from(*byte))).unwrap();
    }
    constraint.mask(&mut mask).unwrap();
    constraint.accept(crate::ids::TokenId(u32::from(b'\\'))).unwrap();
    constraint.mask(&mut mask).unwrap();
    let allowed = super::walk::allowed(&mask);
    assert!(allowed.contains(&crate::ids::TokenId(u32::from(b'n'))));
    assert!(!allowed.contains(&crate::ids::TokenId(u32::from(b'u'))), "\\u0061 would be a second a");
}
