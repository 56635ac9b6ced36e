//! The form of answers: which fields ask for one, what reaches the engine, and what is refused.

use serde_json::{Value, json};

use super::tools::tool;
use super::*;

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";

/// Whether a text is a whole answer, or begins one, under the last request's constraint.
fn allows(server: &TestServer, text: &str) -> bool {
    let mut constraint = server.last_request().constraint.expect("the request has a constraint");
    text.bytes().all(|byte| constraint.accept(TokenId(byte.into())).is_ok())
}

fn schema() -> Value {
    json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false})
}

fn ask(path: &str, extra: Value) -> Value {
    let mut body = match path {
        COMPLETIONS => json!({"prompt": "a"}),
        RESPONSES => json!({"input": "a"}),
        _ => json!({"max_tokens": 99, "messages": [{"role": "user", "content": "a"}]}),
    };
    for (key, value) in extra.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

#[tokio::test]
async fn each_api_has_its_names_for_a_form() {
    let server = TestServer::start(|_| vec![Admit(0), Text("{}"), End]).await;
    let json_schema = json!({"type": "json_schema", "schema": schema()});
    for (path, extra, right, wrong) in [
        (
            CHAT,
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema()}}}),
            "{\"a\":1}",
            "{\"b",
        ),
        (CHAT, json!({"response_format": {"type": "json_object"}}), "{\"b\":[]}", "["),
        (CHAT, json!({"guided_regex": "[ab]+c"}), "abc", "ac1"),
        (CHAT, json!({"structured_outputs": {"choice": ["yes", "no"]}}), "no", "na"),
        (CHAT, json!({"structured_outputs": {"json_object": true}}), "{}", "1"),
        (COMPLETIONS, json!({"guided_json": schema().to_string()}), "{\"a\":1}", "{\"b"),
        (COMPLETIONS, json!({"guided_grammar": "start: \"a\" \"b\"+"}), "abb", "ba"),
        (COMPLETIONS, json!({"guided_choice": ["yes", "no"]}), "yes", "x"),
        (RESPONSES, json!({"text": {"format": json_schema}}), "{\"a\":1}", "{\"b"),
        (MESSAGES, json!({"output_config": {"format": json_schema}}), "{\"a\":1}", "{\"b"),
    ] {
        let reply = server.post(path, &ask(path, extra.clone())).await;
        assert_eq!(reply.status, 200, "{extra}: {}", reply.body);
        assert!(allows(&server, right) && !allows(&server, wrong), "{extra}");
    }
    for (path, extra) in [
        (CHAT, json!({"response_format": {"type": "text"}, "guided_json": null})),
        (RESPONSES, json!({"text": {"format": {"type": "text"}}})),
        (MESSAGES, json!({"output_config": {"effort": "low"}})),
    ] {
        assert_eq!(server.post(path, &ask(path, extra)).await.status, 200);
        assert!(server.last_request().constraint.is_none());
    }
}

#[tokio::test]
async fn thoughts_are_free_and_a_call_may_stand_in_place_of_the_answer() {
    let server = TestServer::with_parsers(|_| vec![Admit(0), Text("{}"), End]).await;
    let format = json!({"type": "json_object"});
    server.post(CHAT, &ask(CHAT, json!({"response_format": format}))).await;
    assert!(allows(&server, "<think>\nAnything [.\n</think>\n\n{\"a\": 1}") && allows(&server, "{}"));
    assert!(!allows(&server, "<think>\nWell.\n</think>\n\nNo") && !allows(&server, "<tool_call>"));
    server.post(CHAT, &ask(CHAT, json!({"response_format": format, "tools": [tool("f")]}))).await;
    assert!(allows(&server, "<tool_call>\n{\"name\"") && allows(&server, "{}") && !allows(&server, "No"));
    assert!(!allows(&server, "<tool_call>No") && !allows(&server, "<tool_call>{\"name\": \"g"));
}

#[tokio::test]
async fn messages_compose_as_tags_do() {
    let parsers = (ToolParser::Harmony, ReasoningParser::Harmony);
    let script = |_: &GenerationRequest| vec![Admit(0), Text("{}"), End];
    let server = TestServer::serving(quick_config(), ZeroTemperature::Reject, parsers, script).await;
    let format = json!({"type": "json_object"});
    server.post(CHAT, &ask(CHAT, json!({"response_format": format}))).await;
    let answer = "<|channel|>final<|message|>{\"a\": 1}";
    let thought = "<|channel|>analysis<|message|>Anything [.<|end|><|start|>assistant";
    let call = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"x\": 1}";
    assert!(allows(&server, answer) && allows(&server, &format!("{thought}{answer}")));
    for wrong in ["{", "<|channel|>final<|message|>No", "<|channel|>commentary<|message|>Hm", call] {
        assert!(!allows(&server, wrong), "{wrong}");
    }
    server.post(CHAT, &ask(CHAT, json!({"response_format": format, "tools": [tool("f")]}))).await;
    assert!(allows(&server, answer) && allows(&server, call) && allows(&server, &format!("{thought}{call}")));
}

#[tokio::test]
async fn a_form_that_cannot_be_enforced_is_refused_by_name() {
    let server = TestServer::start(|_| vec![Admit(0), End]).await;
    let unknown =
        json!({"type": "object", "properties": {"a": {"type": "string", "format": "no-such-format"}}});
    let schema_of = |schema: &Value| json!({"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}});
    for (extra, code, param) in [
        (schema_of(&unknown), "invalid_value", "response_format.json_schema.schema"),
        (
            json!({"response_format": {"type": "json_schema"}}),
            "missing_required_parameter",
            "response_format.json_schema",
        ),
        (json!({"response_format": {"type": "xml"}}), "unsupported_parameter", "response_format.type"),
        (json!({"guided_regex": "("}), "invalid_value", "guided_regex"),
        (json!({"guided_grammar": "start: nothing"}), "invalid_value", "guided_grammar"),
        (json!({"guided_choice": []}), "invalid_value", "guided_choice"),
        (json!({"guided_choice": [1]}), "invalid_type", "guided_choice"),
        (json!({"guided_json": "{"}), "invalid_value", "guided_json"),
        (
            json!({"guided_regex": "a", "structured_outputs": {"regex": "b"}}),
            "invalid_value",
            "structured_outputs.regex",
        ),
    ] {
        server.post(CHAT, &ask(CHAT, extra)).await.assert_error(400, code, Some(param));
    }
    let reply = server.post(CHAT, &ask(CHAT, schema_of(&unknown))).await;
    assert!(reply.json()["error"]["message"].as_str().unwrap().contains("/properties/a"), "{}", reply.body);
    let format = json!({"output_config": {"format": {"type": "json_schema", "schema": unknown}}});
    server.post(MESSAGES, &ask(MESSAGES, format)).await.assert_anthropic_error(400, "invalid_request_error");
    assert!(server.requests.lock().unwrap().is_empty());
}
