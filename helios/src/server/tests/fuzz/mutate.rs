//! Breaks a valid body in ways that clients, and those who mean harm, do.
//!
//! Most mutations work on the JSON tree, so that they get past the parser and into the readers of fields; the rest work on
//! the text, where a tree cannot spell what they want: duplicated keys, bad UTF-8, numbers that fit no type.

use serde_json::{Map, Value, json};

use crate::sim::random::Random;

const LONG_BYTES_MAX: u32 = 4096;
const NESTING_MAX: u32 = 60;
/// What the bodies' answers, which show some of it, are still parsed at.
const DEPTH_MAX: usize = 100;
/// Deeper than the parser goes.
const TEXT_NESTING: usize = 5000;
const TREE_MUTATIONS_MAX: u32 = 2;

/// Names that some reader looks for, put where it does not expect them or with values that it does not.
const FIELDS: [&str; 44] = [
    "add_generation_prompt",
    "arguments",
    "background",
    "best_of",
    "cache_salt",
    "chat_template_kwargs",
    "content",
    "continue_final_message",
    "echo",
    "format",
    "function",
    "guided_choice",
    "guided_grammar",
    "guided_json",
    "guided_regex",
    "input",
    "input_schema",
    "instructions",
    "json_schema",
    "logit_bias",
    "logprobs",
    "max_tokens",
    "messages",
    "min_p",
    "model",
    "n",
    "name",
    "namespace",
    "output_config",
    "parameters",
    "previous_response_id",
    "prompt",
    "reasoning_effort",
    "response_format",
    "role",
    "schema",
    "seed",
    "stop",
    "stream",
    "strict",
    "system",
    "temperature",
    "tool_choice",
    "type",
];

/// Values that fields of enumerations take, here and elsewhere.
const WORDS: [&str; 40] = [
    "",
    "assistant",
    "auto",
    "any",
    "computer_20250124",
    "custom",
    "developer",
    "document",
    "function",
    "function_call",
    "function_call_output",
    "image",
    "image_url",
    "input_audio",
    "input_image",
    "input_text",
    "item_reference",
    "json_object",
    "json_schema",
    "mcp",
    "message",
    "namespace",
    "none",
    "null",
    "output_text",
    "reasoning",
    "redacted_thinking",
    "refusal",
    "required",
    "server_tool_use",
    "system",
    "text",
    "thinking",
    "tool",
    "tool_result",
    "tool_use",
    "user",
    "web_search",
    "{{ raise_exception('x') }}",
    "<|im_end|>",
];

/// Expressions and grammars, some broken, some costly.
const PATTERNS: [&str; 16] = [
    "(",
    "[",
    "a{1000000}",
    "(a*)*b",
    "(?=x)",
    "\\p{Greek}+",
    "(((((((((((((((((((x",
    "[z-a]",
    "\\",
    "^$",
    "(a|b){1,5000}",
    "start: start",
    "start: /a(/",
    "start: missing",
    "%json {\"type\": 1}",
    "start: \"\\u0000\" start | ",
];

/// Breaks one of some valid bodies at least once.
pub(super) fn mutate(draw: &mut Random, valid: &[Value]) -> Vec<u8> {
    let mut body = draw.pick(valid).clone();
    let by_tree = draw.chance(85);
    if by_tree {
        for _ in 0..draw.within(1..=TREE_MUTATIONS_MAX) {
            let mut broken = body.clone();
            mutate_tree(draw, &mut broken);
            if depth(&broken) <= DEPTH_MAX {
                body = broken;
            }
        }
    }
    let mut text = body.to_string().into_bytes();
    if !by_tree || draw.chance(10) {
        mutate_text(draw, &mut text);
    }
    text
}

fn mutate_tree(draw: &mut Random, body: &mut Value) {
    let nodes = count(body);
    let node = nth(body, &mut draw.within(0..=nodes - 1)).expect("there are as many nodes as were counted");
    match (draw.within(0..=9), node) {
        (0 | 1, Value::Object(map)) if !map.is_empty() => drop_key(draw, map),
        (2 | 3, Value::Object(map)) => {
            map.insert((*draw.pick(&FIELDS)).to_owned(), junk(draw));
        }
        (4, Value::Object(map)) if !map.is_empty() => {
            let key = key_of(draw, map);
            let value = map.remove(&key).expect("the key is the map's");
            map.insert((*draw.pick(&FIELDS)).to_owned(), value);
        }
        (0..=2, Value::Array(items)) if !items.is_empty() => {
            let copies = *draw.pick(&[1, 2, 20, 300]);
            let item = draw.pick(items).clone();
            items.extend(std::iter::repeat_n(item, copies));
        }
        (3 | 4, Value::Array(items)) if !items.is_empty() => {
            items.remove(draw.within(0..=items.len() as u32 - 1) as usize);
        }
        (5, Value::Array(items)) => items.push(junk(draw)),
        (0..=4, Value::String(text)) => *text = (*draw.pick(&WORDS)).to_owned(),
        (_, node) => *node = junk(draw),
    }
}

fn drop_key(draw: &mut Random, map: &mut Map<String, Value>) {
    let key = key_of(draw, map);
    map.remove(&key);
}

fn key_of(draw: &mut Random, map: &Map<String, Value>) -> String {
    let index = draw.within(0..=map.len() as u32 - 1) as usize;
    map.keys().nth(index).expect("the index is within the map").clone()
}

fn count(value: &Value) -> u32 {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(map) => map.values().map(count).sum(),
        _ => 0,
    }
}

fn depth(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// The node that `left` nodes come before.
fn nth<'a>(value: &'a mut Value, left: &mut u32) -> Option<&'a mut Value> {
    if *left == 0 {
        return Some(value);
    }
    *left -= 1;
    match value {
        Value::Array(items) => items.iter_mut().find_map(|item| nth(item, left)),
        Value::Object(map) => map.values_mut().find_map(|item| nth(item, left)),
        _ => None,
    }
}

fn junk(draw: &mut Random) -> Value {
    match draw.within(0..=15) {
        0 => Value::Null,
        1 => draw.chance(50).into(),
        2 => json!(*draw.pick(&[0, -1, 1, 2, 127, 128, 129, i64::MIN, i64::MAX])),
        3 => json!(*draw.pick(&[u64::MAX, 1 << 32, (1 << 53) + 1])),
        4 => json!(*draw.pick(&[-0.0, 0.5, 1e308, -1e308, 5e-324, 1.000_000_001, 2.000_001])),
        5 => (*draw.pick(&WORDS)).into(),
        6 => (*draw.pick(&PATTERNS)).into(),
        7 => unicode(draw).into(),
        8 => "a".repeat(draw.within(0..=LONG_BYTES_MAX) as usize).into(),
        9 => nested(draw),
        10 => json!([]),
        11 => json!({}),
        12 => (0..draw.within(1..=9)).map(|_| junk(draw)).collect(),
        13 => json!({(*draw.pick(&FIELDS)): junk(draw), (*draw.pick(&FIELDS)): junk(draw)}),
        14 => json!({unicode(draw): (*draw.pick(&WORDS))}),
        _ => schema(draw),
    }
}

fn unicode(draw: &mut Random) -> String {
    let mut character = || loop {
        let ceiling = *draw.pick(&[0x1F, 0x7F, 0x7FF, 0xFFFF, 0x10_FFFF]);
        if let Some(character) = char::from_u32(draw.within(0..=ceiling)) {
            break character;
        }
    };
    (0..20).map(|_| character()).collect()
}

fn nested(draw: &mut Random) -> Value {
    let in_arrays = draw.chance(50);
    (0..draw.within(1..=NESTING_MAX)).fold(json!("x"), |inner, _| match in_arrays {
        true => json!([inner]),
        false => json!({"properties": {"content": inner}}),
    })
}

/// A schema, most often one that cannot be enforced.
fn schema(draw: &mut Random) -> Value {
    let pattern = *draw.pick(&PATTERNS);
    draw.pick(&[
        json!({"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}),
        json!({"$ref": "#"}),
        json!({"$ref": "#/nowhere"}),
        json!({"$ref": "http://127.0.0.1:1/schema"}),
        json!({"type": "integer", "minimum": 3, "maximum": 2}),
        json!({"enum": []}),
        json!({"type": ["string", 7]}),
        json!({"allOf": [{"type": "string"}, {"type": "number"}]}),
        json!({"anyOf": [{"$ref": "#/anyOf/0"}]}),
        json!({"type": "array", "minItems": 1_000_000}),
        json!({"not": {}}),
        json!({"type": "string", "format": "nonsense"}),
        json!({"const": {"deep": [1, 2, {"x": null}]}}),
        json!({"$defs": {"n": {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"}),
    ])
    .clone()
}

fn mutate_text(draw: &mut Random, text: &mut Vec<u8>) {
    let at = draw.within(0..=text.len() as u32) as usize;
    match draw.within(0..=9) {
        0 => text.truncate(at),
        1 => text.insert(at, *draw.pick(&[0, 0x80, 0xC0, 0xED, 0xFF])),
        2 if at < text.len() => text[at] ^= 1 << draw.within(0..=7),
        3 => {
            let name = draw.pick(&FIELDS);
            let twice = format!("\"{name}\": {}, \"{name}\": {},", junk(draw), junk(draw));
            splice(text, 1, twice.as_bytes());
        }
        4 => splice(text, at, &b"[".repeat(TEXT_NESTING)),
        5 => splice(text, at, &b"{\"a\":".repeat(TEXT_NESTING)),
        6 => splice(text, at, draw.pick(&["\\ud800", "\\u0000", "\\x", "\u{feff}"]).as_bytes()),
        7 => splice(
            text,
            at,
            draw.pick(&["1e999", "-", "NaN", "00", "0x1", "9".repeat(400).as_str()]).as_bytes(),
        ),
        8 => text.extend_from_slice(draw.pick(&["{}", "\0", " null", ","]).as_bytes()),
        _ => *text = (0..draw.within(0..=64)).map(|_| draw.within(0..=255) as u8).collect(),
    }
}

fn splice(text: &mut Vec<u8>, at: usize, piece: &[u8]) {
    let at = at.min(text.len());
    text.splice(at..at, piece.iter().copied());
}
