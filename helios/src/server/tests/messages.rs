//! `/v1/messages` and `/v1/messages/count_tokens`: blocks, events, errors.

use serde_json::{Value, json};

use super::tools::CALLS;
use super::*;

const PATH: &str = "/v1/messages";

fn hello(extra: Value) -> Value {
    let mut body =
        json!({"model": "tests/tiny", "max_tokens": 400, "messages": [{"role": "user", "content": "Hi"}]});
    for (key, value) in extra.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

fn tools() -> Value {
    json!([
        {"name": "f", "description": "F.", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}},
        {"type": "custom", "name": "g", "input_schema": {"type": "object"}},
        {"type": "web_search_20250305", "name": "web_search"},
    ])
}

#[tokio::test]
async fn a_stream_has_these_bytes() {
    let server = TestServer::start(|_| vec![Admit(3), Text("yé"), End]).await;
    let reply = server.post("/v1/messages?beta=true", &hello(json!({"stream": true}))).await;
    assert_eq!(reply.status, 200);
    let id = reply.events()[0]["message"]["id"].as_str().unwrap().to_owned();
    let expected = "event: message_start\n\
        data: {\"type\":\"message_start\",\"message\":{\"id\":\"ID\",\"type\":\"message\",\"role\":\"assistant\",\
        \"model\":\"tests/tiny\",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\
        \"usage\":{\"input_tokens\":18,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":3,\"output_tokens\":0,\
        \"output_tokens_details\":{\"thinking_tokens\":0}}}}\n\n\
        event: ping\ndata: {\"type\":\"ping\"}\n\n\
        event: content_block_start\n\
        data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n\
        event: content_block_delta\n\
        data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"y\"}}\n\n\
        event: content_block_delta\n\
        data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"é\"}}\n\n\
        event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n\
        event: message_delta\n\
        data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\
        \"usage\":{\"input_tokens\":18,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":3,\"output_tokens\":4,\
        \"output_tokens_details\":{\"thinking_tokens\":0}}}\n\n\
        event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    assert_eq!(reply.body.replace(&id, "ID"), expected);
}

#[tokio::test]
async fn thoughts_texts_and_calls_are_blocks() {
    let server = TestServer::with_parsers(|_| vec![Admit(0), Text(CALLS), End]).await;
    let asked =
        hello(json!({"tools": tools(), "thinking": {"type": "adaptive"}, "metadata": {"user_id": "x"},
        "context_management": {"edits": []}, "output_config": {"effort": "high"}}));
    let whole = server.post(PATH, &asked).await.json();
    let blocks = whole["content"].as_array().unwrap();
    assert_eq!(blocks[0], json!({"type": "thinking", "thinking": "Hm.", "signature": "flare"}));
    assert_eq!(blocks[1], json!({"type": "text", "text": "Let me look."}));
    assert_eq!((&blocks[2]["name"], &blocks[2]["input"]), (&json!("f"), &json!({"x": 1})));
    assert_eq!((&blocks[3]["name"], &blocks[3]["input"]), (&json!("g"), &json!({})));
    assert_eq!(whole["stop_reason"], "tool_use");
    let prompt = server.last_prompt();
    assert!(prompt.contains("\"description\": \"F.\"") && prompt.contains("\"name\": \"g\""));
    assert!(!prompt.contains("web_search") && prompt.contains("[effort high]"));

    let mut streamed = asked;
    streamed["stream"] = json!(true);
    let reply = server.post(PATH, &streamed).await;
    let mut types = reply.event_types();
    types.dedup();
    assert_eq!(
        types.join(" "),
        "message_start ping content_block_start content_block_delta content_block_stop \
         content_block_start content_block_delta content_block_stop content_block_start content_block_delta \
         content_block_stop content_block_start content_block_delta content_block_stop message_delta message_stop"
    );
    let mut arguments = [String::new(), String::new()];
    for event in reply.events() {
        if event["delta"]["type"] == "input_json_delta" {
            let index = event["index"].as_u64().unwrap() as usize;
            arguments[index - 2].push_str(event["delta"]["partial_json"].as_str().unwrap());
        }
    }
    assert_eq!(arguments, ["{\"x\": 1}", "{}"]);
    let before_stop = reply.events().into_iter().rfind(|event| event["index"] == 0).unwrap();
    assert_eq!(before_stop["type"], "content_block_stop");
    assert!(reply.body.contains("\"delta\":{\"type\":\"signature_delta\",\"signature\":\"flare\"}"));
}

#[tokio::test]
async fn a_replayed_conversation_reaches_the_template() {
    let server = TestServer::with_parsers(|_| vec![Admit(0), End]).await;
    let body = json!({
        "max_tokens": 9,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cch=12345;"},
            {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            {"role": "system", "content": "Be kind."},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "Look:"},
                {"type": "tool_use", "id": "c1", "name": "f", "input": {"x": 1}},
                {"type": "tool_use", "id": "c2", "name": "g", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "one", "cache_control": {"type": "ephemeral"}},
                {"type": "tool_result", "tool_use_id": "c2", "is_error": true,
                 "content": [{"type": "text", "text": "two"}, {"type": "image", "source": {}}]},
                {"type": "text", "text": "Go on."},
            ]},
        ],
    });
    assert_eq!(server.post(PATH, &body).await.status, 200);
    assert_eq!(
        server.last_prompt(),
        "<|im_start|>system\nBe brief.\n\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n\
         <|im_start|>assistant\nLook:[thought Hm.][call {\"x\": 1}][call {}]<|im_end|>\n\
         <|im_start|>tool\none<|im_end|>\n\
         <|im_start|>tool\nError: two\n[An image was here, which this model cannot see.]<|im_end|>\n\
         <|im_start|>user\nGo on.<|im_end|>\n<|im_start|>assistant\n"
    );
    let count = server.post("/v1/messages/count_tokens", &body).await.json();
    assert_eq!(count, json!({"input_tokens": server.last_request().prompt.len()}));
}

#[tokio::test]
async fn the_last_words_of_the_assistant_are_continued() {
    let server = TestServer::start(|_| vec![Admit(0), End]).await;
    let messages = json!([{"role": "user", "content": "Go"}, {"role": "assistant", "content": "One, "}]);
    server.post(PATH, &json!({"max_tokens": 1, "messages": messages})).await;
    assert!(server.last_prompt().ends_with("<|im_start|>assistant\nOne, "));
}

#[tokio::test]
async fn stop_reasons_say_what_stopped() {
    let server = TestServer::start(|_| vec![Admit(0), Text("one STOP"), Length]).await;
    let stopped = server.post(PATH, &hello(json!({"stop_sequences": ["x", "STOP"]}))).await.json();
    assert_eq!(
        (&stopped["stop_reason"], &stopped["stop_sequence"]),
        (&json!("stop_sequence"), &json!("STOP"))
    );
    assert_eq!(stopped["content"], json!([{"type": "text", "text": "one "}]));
    let limited = server.post(PATH, &hello(json!({}))).await.json();
    assert_eq!(limited["stop_reason"], "max_tokens");
    let full = server.post(PATH, &hello(json!({"max_tokens": 128_000}))).await.json();
    assert_eq!(full["stop_reason"], "model_context_window_exceeded");
}

#[tokio::test]
async fn tool_choice_in_anthropics_words() {
    let server = TestServer::with_parsers(|_| vec![Admit(0), Text("No."), End]).await;
    let with = |choice: Value| hello(json!({"tools": tools(), "tool_choice": choice}));
    server
        .post(PATH, &with(json!({"type": "any"})))
        .await
        .assert_anthropic_error(422, "invalid_request_error");
    server
        .post(PATH, &with(json!({"type": "tool", "name": "f"})))
        .await
        .assert_anthropic_error(422, "invalid_request_error");
    server
        .post(PATH, &with(json!({"type": "tool", "name": "h"})))
        .await
        .assert_anthropic_error(400, "invalid_request_error");
    assert_eq!(server.post(PATH, &with(json!({"type": "auto"}))).await.status, 200);
    assert_eq!(server.post(PATH, &with(json!({"type": "none"}))).await.status, 200);
    assert!(!server.last_prompt().contains("[tools"));
}

#[tokio::test]
async fn errors_have_anthropics_envelope() {
    let server = TestServer::start(|_| vec![Admit(0), End]).await;
    let long = "x".repeat(CONTEXT as usize);
    let reply = server.post(PATH, &hello(json!({"messages": [{"role": "user", "content": long}]}))).await;
    reply.assert_anthropic_error(400, "invalid_request_error");
    let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("prompt is too long: 531 tokens > 511 maximum"), "{message}");
    server.get("/v1/messages/nowhere").await.assert_anthropic_error(404, "not_found_error");
    assert_eq!(server.post(PATH, &hello(json!({"model": "any-name"}))).await.status, 200);
    server.get(PATH).await.assert_anthropic_error(405, "invalid_request_error");
    for wrong in [
        json!({"messages": [{"role": "user", "content": [{"type": "image"}]}]}),
        json!({"messages": [{"role": "robot", "content": "x"}]}),
        json!({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}),
        json!({"tools": [{"name": "f", "strict": 1}]}),
        json!({"tool_choice": {"type": "most"}}),
        json!({"temperature": "warm"}),
    ] {
        server.post(PATH, &hello(wrong)).await.assert_anthropic_error(400, "invalid_request_error");
    }
    let failure = EngineError::Execution("secret".into());
    let server = TestServer::start(move |_| vec![Admit(0), Text("ab"), Fail(failure.clone())]).await;
    let reply = server.post(PATH, &hello(json!({"stream": true}))).await;
    let last = reply.events().pop().unwrap();
    assert_eq!((&last["type"], &last["error"]["type"]), (&json!("error"), &json!("api_error")));
    assert_eq!(last["request_id"], reply.headers["x-request-id"].as_str());
    assert!(!reply.body.contains("secret") && !reply.body.contains("message_stop"));
}

#[tokio::test]
async fn silence_is_filled_with_pings() {
    let server = TestServer::with_a_silence().await;
    let reply = server.post(PATH, &hello(json!({"stream": true}))).await;
    let pings = reply.event_types().iter().filter(|kind| *kind == "ping").count();
    assert!(pings >= 3, "one at the start and more in the silence: {pings}");
}
