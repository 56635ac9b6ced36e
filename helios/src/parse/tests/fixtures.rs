//! Outputs in each form, and what they mean.

use super::super::{Tool, Tools};
use crate::core::contract::{ReasoningParser, ToolParser};
use serde_json::json;

/// An event without what no fixture decides: indexes and ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Means {
    Text(&'static str),
    Reasoning(&'static str),
    /// Name and arguments.
    Call(&'static str, &'static str),
}

/// Outputs of one pair of parsers.
pub struct Group {
    pub parsers: (ToolParser, ReasoningParser),
    pub prompt: &'static str,
    pub outputs: &'static [(&'static str, &'static [Means])],
}

pub fn tools() -> Tools {
    let tool = |name: &str, properties: serde_json::Value| Tool {
        name: name.to_owned(),
        parameters: json!({"type": "object", "properties": properties}),
    };
    Tools::new(vec![
        tool(
            "weather",
            json!({
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "metric": {"type": "boolean"},
                "hours": {"type": "array"},
                "near": {"type": "object"},
                "unit": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            }),
        ),
        tool("write", json!({"path": {"type": "string"}, "content": {"type": "string"}})),
        Tool { name: "ping".to_owned(), parameters: serde_json::Value::Null },
    ])
}

use Means::{Call as C, Reasoning as R, Text as T};

pub const GROUPS: &[Group] = &[
    Group { parsers: (ToolParser::None, ReasoningParser::None), prompt: "", outputs: PLAIN },
    Group { parsers: (ToolParser::None, ReasoningParser::ThinkTags), prompt: "", outputs: THINK },
    Group { parsers: (ToolParser::None, ReasoningParser::ThinkTags), prompt: "<think>\n", outputs: OPENED },
    Group { parsers: (ToolParser::None, ReasoningParser::ThinkOpen), prompt: "", outputs: OPENED },
    Group { parsers: (ToolParser::Mistral, ReasoningParser::ThinkBrackets), prompt: "", outputs: BRACKETS },
    Group { parsers: (ToolParser::HermesJson, ReasoningParser::ThinkTags), prompt: "", outputs: HERMES },
    Group { parsers: (ToolParser::QwenXml, ReasoningParser::None), prompt: "", outputs: QWEN },
    Group { parsers: (ToolParser::Llama3Json, ReasoningParser::None), prompt: "", outputs: LLAMA },
    Group { parsers: (ToolParser::Mistral, ReasoningParser::None), prompt: "", outputs: MISTRAL },
    Group { parsers: (ToolParser::Glm, ReasoningParser::ThinkTags), prompt: "", outputs: GLM },
    Group { parsers: (ToolParser::Deepseek, ReasoningParser::ThinkTags), prompt: "", outputs: DEEPSEEK },
    Group { parsers: (ToolParser::Kimi, ReasoningParser::ThinkTags), prompt: "", outputs: KIMI },
    Group { parsers: (ToolParser::Gemma, ReasoningParser::ThoughtChannel), prompt: "", outputs: GEMMA },
    Group { parsers: (ToolParser::Harmony, ReasoningParser::Harmony), prompt: "", outputs: HARMONY },
];

const PLAIN: &[(&str, &[Means])] = &[
    ("", &[]),
    (
        "Héllo <think>\n</think> <tool_call>{}</tool_call>\n",
        &[T("Héllo <think>\n</think> <tool_call>{}</tool_call>\n")],
    ),
];

const THINK: &[(&str, &[Means])] = &[
    ("<think>\nWhy? 因为。\n</think>\n\nBecause.", &[R("Why? 因为。"), T("Because.")]),
    ("\n <think>a</think>b", &[R("a"), T("b")]),
    ("<think>\n\n</think>\n\nNo thought.", &[T("No thought.")]),
    ("<think>\nno end\n\n", &[R("no end\n\n")]),
    ("<think>a </thin> < /think> b</think>c", &[R("a </thin> < /think> b"), T("c")]),
    ("Use <think> and </think>.", &[T("Use <think> and </think>.")]),
    ("<think>one\n\ntwo <think> three</think>\n  code", &[R("one\n\ntwo <think> three"), T("  code")]),
    ("<think>a</think>b</think>c<think>d", &[R("a"), T("b</think>c<think>d")]),
    ("<thin", &[T("<thin")]),
    ("<think>a</th", &[R("a</th")]),
];

const OPENED: &[(&str, &[Means])] = &[
    ("Why?\n</think>\n\nBecause.", &[R("Why?"), T("Because.")]),
    ("<think>\nWhy?</think>Because.", &[R("Why?"), T("Because.")]),
    ("Why? <think>", &[R("Why? <think>")]),
    ("</think>Because.", &[T("Because.")]),
    ("\n\n</think>\n", &[]),
    ("é\n\n\nf\n</think>\n", &[R("é\n\n\nf")]),
];

const BRACKETS: &[(&str, &[Means])] = &[
    ("[THINK]Hm.[/THINK]Yes.", &[R("Hm."), T("Yes.")]),
    (r#"[THINK]a[THINK[/THINK][TOOL_CALLS]ping[ARGS]{}"#, &[R("a[THINK"), C("ping", "{}")]),
    ("Say [THINK]", &[T("Say [THINK]")]),
];

const HERMES: &[(&str, &[Means])] = &[
    (
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Zürich\", \"days\": 3}}\n</tool_call>",
        &[C("weather", r#"{"city": "Zürich", "days": 3}"#)],
    ),
    (
        "<think>\nI need it.\n</think>\n\nLet me see.\n<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"arguments\": {\"path\": \"a\"}, \"name\": \"write\"}\n</tool_call>\nDone. ",
        &[R("I need it."), T("Let me see."), C("ping", "{}"), C("write", r#"{"path": "a"}"#), T("Done. ")],
    ),
    (
        r#"<tool_call>{"name":"write","arguments":{"content":"}]</tool_call>\" {\\","path":"\u00e9\ud83d\ude00"}}</tool_call>"#,
        &[C("write", r#"{"content":"}]</tool_call>\" {\\","path":"\u00e9\ud83d\ude00"}"#)],
    ),
    (
        r#"<tool_call>{"name": "weather", "arguments": "{\"city\": \"\\u00e9 \\\"x\\\"\", \"days\": 1}"}</tool_call>"#,
        &[C("weather", r#"{"city": "\u00e9 \"x\"", "days": 1}"#)],
    ),
    (r#"<tool_call>{"name": "ping"}</tool_call>"#, &[C("ping", "{}")]),
    (r#"<tool_call>{"name": "ping", "arguments": null}</tool_call>"#, &[C("ping", "{}")]),
    (r#"<tool_call>{"name": "ping", "parameters": ""}</tool_call>"#, &[C("ping", "{}")]),
    (
        r#"<tool_call>{"type": "function", "id": null, "name": "weather", "arguments": {"near": {"a": [{"b": [1, -2.5e3, true]}]}}}</tool_call>"#,
        &[C("weather", r#"{"near": {"a": [{"b": [1, -2.5e3, true]}]}}"#)],
    ),
    ("Wrap it in <tool_call> tags.\n", &[T("Wrap it in <tool_call> tags.\n")]),
    (
        "A <tool_call> and <tool_call>{\"name\": \"ping\", \"arguments\": {}}</tool_call>",
        &[T("A <tool_call> and"), C("ping", "{}")],
    ),
    (
        "<tool_call><tool_call>{\"name\": \"ping\", \"arguments\": {}}</tool_call>",
        &[T("<tool_call>"), C("ping", "{}")],
    ),
    (
        "See:\n<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>\n",
        &[T("See:\n<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>\n")],
    ),
    (
        "<tool_call>{\"name\": \"ping\", \"arguments\": {oops}}</tool_call>",
        &[T("<tool_call>{\"name\": \"ping\", \"arguments\": {oops}}</tool_call>")],
    ),
    (
        "<tool_call>{\"name\": \"ping\", \"arguments\": \"not json\"}</tool_call>",
        &[T("<tool_call>{\"name\": \"ping\", \"arguments\": \"not json\"}</tool_call>")],
    ),
    (
        "<tool_call>{\"name\": \"ping\", \"arguments\": [1]}</tool_call>",
        &[T("<tool_call>{\"name\": \"ping\", \"arguments\": [1]}</tool_call>")],
    ),
    (
        "<tool_call>{\"name\": \"ping\", \"arguments\": {}} what</tool_call>",
        &[T("<tool_call>{\"name\": \"ping\", \"arguments\": {}} what</tool_call>")],
    ),
    ("<tool_call>{\"arguments\": {}}</tool_call>", &[T("<tool_call>{\"arguments\": {}}</tool_call>")]),
    ("<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}", &[C("ping", "{}")]),
    ("<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool", &[C("ping", "{}")]),
    (
        "Now: <tool_call>\n{\"name\": \"ping\", \"arguments\": {\"a\": \"é",
        &[T("Now: <tool_call>\n{\"name\": \"ping\", \"arguments\": {\"a\": \"é")],
    ),
    (
        "<think>It says <tool_call>{\"name\": \"ping\"}</tool_call></think>No.",
        &[R("It says <tool_call>{\"name\": \"ping\"}</tool_call>"), T("No.")],
    ),
];

const QWEN: &[(&str, &[Means])] = &[
    (
        "<tool_call>\n<function=weather>\n<parameter=city>\nZürich\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
        &[C("weather", r#"{"city":"Zürich","days":3}"#)],
    ),
    (
        "I see.\n\n<tool_call><function=ping></function></tool_call>\n<tool_call>\n<function=ping>\n</function>\n</tool_call> Done",
        &[T("I see."), C("ping", "{}"), C("ping", "{}"), T("Done")],
    ),
    (
        "<tool_call>\n<function=write>\n<parameter=content>\n\n  if a < b:\n\treturn \"</parameter>\\n\"\n\n</parameter>\n<parameter=path>\n5\n</parameter>\n</function>\n</tool_call>",
        &[C("write", r#"{"content":"\n  if a < b:\n\treturn \"</parameter>\\n\"\n","path":"5"}"#)],
    ),
    (
        "<tool_call><function=weather><parameter=metric>True</parameter><parameter=hours>[1, \"b\"]</parameter><parameter=near>{\"x\": {\"y\": \"}\"}}</parameter><parameter=unit>null</parameter></function></tool_call>",
        &[C("weather", r#"{"metric":true,"hours":[1, "b"],"near":{"x": {"y": "}"}},"unit":null}"#)],
    ),
    (
        "<tool_call><function=weather><parameter=days>many</parameter><parameter=city></parameter><parameter=else>1</parameter></function></tool_call>",
        &[C("weather", r#"{"days":"many","city":"","else":1}"#)],
    ),
    (
        "<function=ping>\n</function>\n</tool_call>\n<function=ping></function>",
        &[C("ping", "{}"), C("ping", "{}")],
    ),
    ("<function=ping></function><function=ping></function>!", &[C("ping", "{}"), C("ping", "{}"), T("!")]),
    ("<tool_call>\n<function=ping>\n</function>", &[C("ping", "{}")]),
    ("Write <tool_call> and <function=NAME>.", &[T("Write <tool_call> and <function=NAME>.")]),
    (
        "<tool_call>\n<function=unknown>\n</function>\n</tool_call>",
        &[T("<tool_call>\n<function=unknown>\n</function>\n</tool_call>")],
    ),
    (
        "<tool_call>\n<function=write>\n<parameter=path>\na\n</parameter>\n<parameter=content>\nhalf é",
        &[T("<tool_call>\n<function=write>\n<parameter=path>\na\n</parameter>\n<parameter=content>\nhalf é")],
    ),
    (
        "a <tool_call><function=ping>junk</function></tool_call>",
        &[T("a <tool_call><function=ping>junk</function></tool_call>")],
    ),
];

const LLAMA: &[(&str, &[Means])] = &[
    (r#"{"name": "weather", "parameters": {"city": "Zürich"}}"#, &[C("weather", r#"{"city": "Zürich"}"#)]),
    (
        "\n<|python_tag|>{\"name\": \"ping\", \"parameters\": {}}; {\"name\": \"ping\", \"arguments\": {\"a\": \"\\u00e9}\"}}",
        &[C("ping", "{}"), C("ping", r#"{"a": "\u00e9}"}"#)],
    ),
    (
        "{\"type\": \"function\", \"name\": \"ping\", \"parameters\": {}}\n{\"name\": \"ping\"}\n\nThat is all.",
        &[C("ping", "{}"), C("ping", "{}"), T("That is all.")],
    ),
    (r#"{"name": "weather", "parameters": "{\"days\": 2}"}"#, &[C("weather", r#"{"days": 2}"#)]),
    (
        "Look: {\"name\": \"ping\", \"parameters\": {}}",
        &[T("Look: {\"name\": \"ping\", \"parameters\": {}}")],
    ),
    ("Look: <|python_tag|>{\"name\": \"ping\", \"parameters\": {}}", &[T("Look:"), C("ping", "{}")]),
    (r#"{"answer": {"name": "ping"}}"#, &[T(r#"{"answer": {"name": "ping"}}"#)]),
    (r#"{"name": "Ada", "parameters": {}}"#, &[T(r#"{"name": "Ada", "parameters": {}}"#)]),
    ("<|python_tag|>print(1)", &[T("<|python_tag|>print(1)")]),
    (
        " {\"name\": \"ping\", \"parameters\": {\"a\": {",
        &[T(" {\"name\": \"ping\", \"parameters\": {\"a\": {")],
    ),
    ("{\"name\": \"ping\"} {\"x\": 1}", &[C("ping", "{}"), T(" {\"x\": 1}")]),
];

const MISTRAL: &[(&str, &[Means])] = &[
    (
        "[TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": {\"city\": \"Zürich\"}}]",
        &[C("weather", r#"{"city": "Zürich"}"#)],
    ),
    (
        "Well. [TOOL_CALLS][{\"name\": \"ping\", \"arguments\": {}}, {\"arguments\": {\"path\": \"]}\\\"[\"}, \"name\": \"write\", \"id\": \"abcdefghi\"}]",
        &[T("Well."), C("ping", "{}"), C("write", r#"{"path": "]}\"["}"#)],
    ),
    (
        "[TOOL_CALLS]weather[ARGS]{\"near\": {\"a\": [\"\\u00e9\"]}}[TOOL_CALLS]ping[ARGS]{}",
        &[C("weather", r#"{"near": {"a": ["\u00e9"]}}"#), C("ping", "{}")],
    ),
    ("[TOOL_CALLS]ping[CALL_ID]abcdefghi[ARGS]{}\nSo.", &[C("ping", "{}"), T("So.")]),
    ("[TOOL_CALLS]ping{\"a\": 1}", &[C("ping", r#"{"a": 1}"#)]),
    ("[TOOL_CALLS]{\"name\": \"ping\", \"arguments\": \"{}\"}", &[C("ping", "{}")]),
    ("[TOOL_CALLS][{\"name\": \"ping\", \"arguments\": {}}", &[C("ping", "{}")]),
    ("Write [TOOL_CALLS] first.", &[T("Write [TOOL_CALLS] first.")]),
    ("[TOOL_CALLS]unknown[ARGS]{}", &[T("[TOOL_CALLS]unknown[ARGS]{}")]),
    ("[TOOL_CALLS]ping[ARGS]{\"a\": \"é", &[T("[TOOL_CALLS]ping[ARGS]{\"a\": \"é")]),
    (
        "[TOOL_CALLS][{\"name\": \"ping\", \"arguments\": {}}, {\"name\": \"none\"}]",
        &[C("ping", "{}"), T(", {\"name\": \"none\"}]")],
    ),
    ("[TOOL_CALLS][]", &[T("[TOOL_CALLS][]")]),
];

const GLM: &[(&str, &[Means])] = &[
    (
        "<think>Hm.</think>\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Zürich</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
        &[R("Hm."), C("weather", r#"{"city":"Zürich","days":3}"#)],
    ),
    (
        "So:\n<tool_call>weather<arg_key>hours</arg_key><arg_value>[1, {\"a\": \"<\"}]</arg_value><arg_key>else</arg_key><arg_value>{\"b\": null}</arg_value></tool_call>",
        &[T("So:"), C("weather", r#"{"hours":[1, {"a": "<"}],"else":{"b": null}}"#)],
    ),
    (
        "<tool_call>ping\n</tool_call>\n<tool_call>ping</tool_call>\nOk",
        &[C("ping", "{}"), C("ping", "{}"), T("Ok")],
    ),
    (
        "<tool_call>write\n<arg_key>content</arg_key>\n<arg_value> a \"q\"\n</arg_value> </tool_call\n</arg_value>\n</tool_call>",
        &[C("write", r#"{"content":" a \"q\"\n</arg_value> </tool_call\n"}"#)],
    ),
    (
        "<tool_call>weather<arg_key>unit</arg_key><arg_value></arg_value><arg_key>metric</arg_key><arg_value>false</arg_value></tool_call>",
        &[C("weather", r#"{"unit":"","metric":false}"#)],
    ),
    ("The <tool_call> tag and <tool_call>ping pong", &[T("The <tool_call> tag and <tool_call>ping pong")]),
    ("<tool_call>unknown\n</tool_call>", &[T("<tool_call>unknown\n</tool_call>")]),
    (
        "<tool_call>write\n<arg_key>content</arg_key>\n<arg_value>é</arg_value>\n",
        &[T("<tool_call>write\n<arg_key>content</arg_key>\n<arg_value>é</arg_value>\n")],
    ),
    (
        "<tool_call>write\n<arg_key>content</arg_key>\n<value>",
        &[T("<tool_call>write\n<arg_key>content</arg_key>\n<value>")],
    ),
];

const DEEPSEEK: &[(&str, &[Means])] = &[
    (
        "<think>\nHm.\n</think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"Zürich\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        &[R("Hm."), C("weather", r#"{"city": "Zürich"}"#)],
    ),
    (
        "Wait.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>ping\n```json\n{}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>write\n```json\n{\"content\": \"```<｜tool▁call▁end｜>\\u00e9\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        &[T("Wait."), C("ping", "{}"), C("write", r#"{"content": "```<｜tool▁call▁end｜>\u00e9"}"#)],
    ),
    (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"near\": {\"a\": [[]]}}<｜tool▁call▁end｜><｜tool▁call▁begin｜>ping<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>\nOk",
        &[C("weather", r#"{"near": {"a": [[]]}}"#), C("ping", "{}"), T("Ok")],
    ),
    ("<｜tool▁call▁begin｜>ping<｜tool▁sep｜>{}<｜tool▁call▁end｜>", &[C("ping", "{}")]),
    ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>ping<｜tool▁sep｜>{}", &[C("ping", "{}")]),
    ("<｜tool▁calls▁begin｜> is a mark", &[T("<｜tool▁calls▁begin｜> is a mark")]),
    (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>unknown<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        &[T(
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>unknown<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        )],
    ),
    (
        "a <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>ping\n```json\n{\"a\": [\"é",
        &[T(
            "a <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>ping\n```json\n{\"a\": [\"é",
        )],
    ),
    (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>ping<｜tool▁sep｜>{}<｜tool▁call▁end｜> and <b>more</b>",
        &[C("ping", "{}"), T("and <b>more</b>")],
    ),
];

const KIMI: &[(&str, &[Means])] = &[
    (
        "<think>Hm.</think>I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{\"city\": \"Zürich\"}<|tool_call_end|><|tool_calls_section_end|>",
        &[R("Hm."), T("I look."), C("weather", r#"{"city": "Zürich"}"#)],
    ),
    (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.ping:3<|tool_call_argument_begin|>{}<|tool_call_end|>\n<|tool_call_begin|>write:12 <|tool_call_argument_begin|> {\"path\": \"<|tool_call_end|>}\\\"\\u00e9\"} <|tool_call_end|><|tool_calls_section_end|> Ok",
        &[C("ping", "{}"), C("write", r#"{"path": "<|tool_call_end|>}\"\u00e9"}"#), T("Ok")],
    ),
    (
        "<think>I call<|tool_calls_section_begin|><|tool_call_begin|>functions.ping:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
        &[R("I call"), C("ping", "{}")],
    ),
    (
        "<|tool_call_section_begin|>\n<|tool_call_begin|>ping<|tool_call_argument_begin|>{\"a\": {\"b\": []}}<|tool_call_end|><|tool_call_section_end|>",
        &[C("ping", r#"{"a": {"b": []}}"#)],
    ),
    ("<|tool_call_begin|>functions.ping:0<|tool_call_argument_begin|>{}", &[C("ping", "{}")]),
    ("The <|tool_calls_section_begin|> mark", &[T("The <|tool_calls_section_begin|> mark")]),
    (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.unknown:0<|tool_call_argument_begin|>{}",
        &[T(
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.unknown:0<|tool_call_argument_begin|>{}",
        )],
    ),
    (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.ping:0<|tool_call_argument_begin|>{\"a\": \"é",
        &[T(
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.ping:0<|tool_call_argument_begin|>{\"a\": \"é",
        )],
    ),
    (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.ping:0<|tool_call_argument_begin|>[]",
        &[T("<|tool_calls_section_begin|><|tool_call_begin|>functions.ping:0<|tool_call_argument_begin|>[]")],
    ),
];

const GEMMA: &[(&str, &[Means])] = &[
    (
        "<|channel>thought\nHm.\n<channel|>I look. <|tool_call>call:weather{city:<|\"|>Zürich<|\"|>,days:3}<tool_call|>",
        &[R("Hm."), T("I look."), C("weather", r#"{"city":"Zürich","days":3}"#)],
    ),
    (
        "<|tool_call>call:ping{}<tool_call|><|tool_call>call:write{content:<|\"|>a \"b\" {,}\n\\<|\"|>,path:<|\"|><|\"|>}<tool_call|>Ok",
        &[C("ping", "{}"), C("write", r#"{"content":"a \"b\" {,}\n\\","path":""}"#), T("Ok")],
    ),
    (
        "<|tool_call>call:weather{near:{<|\"|>a b<|\"|>:[1,-2.5,{c:true}],d:{}},hours:[], metric: false , unit:null}<tool_call|>",
        &[C(
            "weather",
            r#"{"near":{"a b":[1,-2.5,{"c":true}],"d":{}},"hours":[],"metric":false,"unit":null}"#,
        )],
    ),
    (
        "<start_function_call>call:weather{city:<escape>Zürich<escape>,days:1}<end_function_call>",
        &[C("weather", r#"{"city":"Zürich","days":1}"#)],
    ),
    ("<|tool_call>call:weather{city:Bad Ems}", &[C("weather", r#"{"city":"Bad Ems"}"#)]),
    ("<|channel>thought\n<channel|>Yes.", &[T("Yes.")]),
    ("Say <|tool_call>call me", &[T("Say <|tool_call>call me")]),
    ("<|tool_call>call:unknown{}<tool_call|>", &[T("<|tool_call>call:unknown{}<tool_call|>")]),
    ("<|tool_call>call:ping{a:<|\"|>é", &[T("<|tool_call>call:ping{a:<|\"|>é")]),
    ("<|tool_call>call:ping{a:,b:1}<tool_call|>", &[T("<|tool_call>call:ping{a:,b:1}<tool_call|>")]),
];

const HARMONY: &[(&str, &[Means])] = &[
    (
        "<|channel|>analysis<|message|>Hm.\n<|end|><|start|>assistant<|channel|>final<|message|>Yes, é.<|return|>",
        &[R("Hm.\n"), T("Yes, é.")],
    ),
    (
        "<|channel|>analysis<|message|>Look.<|end|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"Zürich\"}<|call|>",
        &[R("Look."), C("weather", r#"{"city": "Zürich"}"#)],
    ),
    (
        "<|start|>assistant to=functions.write<|channel|>commentary json<|message|>{\"content\": \"<|end|>}\\\"\\u00e9\"}",
        &[C("write", r#"{"content": "<|end|>}\"\u00e9"}"#)],
    ),
    (
        "<|channel|>commentary<|message|>I do two things.<|end|><|start|>assistant<|channel|>commentary to=functions.ping<|message|><|call|><|start|>assistant<|channel|>commentary to=functions.ping<|message|> {\"a\": [{}]} <|end|>",
        &[T("I do two things."), C("ping", "{}"), C("ping", r#"{"a": [{}]}"#)],
    ),
    ("Just text < and <|mess", &[T("Just text < and <|mess")]),
    (
        "<|channel|>commentary to=functions.unknown<|message|>{}<|call|>",
        &[T("<|channel|>commentary to=functions.unknown<|message|>{}<|call|>")],
    ),
    (
        "<|channel|>commentary to=functions.ping<|message|>{\"a\": \"é",
        &[T("<|channel|>commentary to=functions.ping<|message|>{\"a\": \"é")],
    ),
    ("<|channel|>analysis<|message|>no end", &[R("no end")]),
    ("<|channel|>elsewhere<|message|>what", &[T("<|channel|>elsewhere<|message|>what")]),
    ("<|channel|>final<|message|>A<|start|>assistant<|channel|>final<|message|>B", &[T("AB")]),
    ("<|channel|>analysis", &[T("<|channel|>analysis")]),
    ("<|start|>user<|message|>x<|end|>", &[T("<|start|>user<|message|>x<|end|>")]),
];
