//! Tool calls and reasoning in `/v1/chat/completions`, and what `tool_choice` does.

use serde_json::{Value, json};

use super::*;

const PATH: &str = "/v1/chat/completions";
pub(super) const CALLS: &str = "<think>\nHm.\n</think>\n\nLet me look.\n\
    <tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>\n\
    <tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";

pub(super) fn tool(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}})
}

fn body(extra: Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": "Go"}],
        "tools": [tool("f"), tool("g")],
    });
    for (key, value) in extra.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

#[tokio::test]
async fn a_whole_answer_has_reasoning_text_and_calls() {
    let server = TestServer::with_parsers(|_| vec![Admit(0), Text(CALLS), End]).await;
    let reply = server.post(PATH, &body(json!({}))).await.json();
    let choice = &reply["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    let message = &choice["message"];
    assert_eq!(message["content"], "Let me look.");
    assert_eq!((&message["reasoning_content"], &message["reasoning"]), (&json!("Hm."), &json!("Hm.")));
    let calls = message["tool_calls"].as_array().unwrap();
    assert_eq!(calls[0]["function"], json!({"name": "f", "arguments": "{\"x\": 1}"}));
    assert_eq!(calls[1]["function"], json!({"name": "g", "arguments": "{}"}));
    assert_eq!(calls[0]["type"], "function");
    assert_ne!(calls[0]["id"], calls[1]["id"]);
    let details = &reply["usage"]["completion_tokens_details"];
    let reasoning = details["reasoning_tokens"].as_u64().unwrap() as usize;
    // The tokens of the thought and of the tag that opens it, one a byte; the tag that closes it is decided later.
    assert!(("<think>\nHm.".len()..="<think>\nHm.\n".len()).contains(&reasoning), "{reasoning}");
}

#[tokio::test]
async fn a_stream_tells_of_calls_piece_by_piece() {
    let server = TestServer::with_parsers(|_| vec![Admit(0), Text(CALLS), End]).await;
    let reply = server.post(PATH, &body(json!({"stream": true}))).await;
    let events = reply.events();
    let mut reasoning = String::new();
    let mut content = String::new();
    let mut calls: Vec<(String, String)> = Vec::new();
    for event in &events {
        let delta = &event["choices"][0]["delta"];
        reasoning.push_str(delta["reasoning_content"].as_str().unwrap_or(""));
        content.push_str(delta["content"].as_str().unwrap_or(""));
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().unwrap() as usize;
            match call["function"]["name"].as_str() {
                Some(name) => {
                    assert_eq!((index, &call["type"]), (calls.len(), &json!("function")));
                    assert_eq!(call["function"]["arguments"], "");
                    assert!(call["id"].as_str().is_some_and(|id| !id.is_empty()));
                    calls.push((name.to_owned(), String::new()));
                }
                None => {
                    assert_eq!(
                        call.as_object().unwrap().len(),
                        2,
                        "later deltas have an index and arguments"
                    );
                    calls[index].1.push_str(call["function"]["arguments"].as_str().unwrap());
                }
            }
        }
    }
    assert_eq!((reasoning.as_str(), content.as_str()), ("Hm.", "Let me look."));
    assert_eq!(calls, [("f".to_owned(), "{\"x\": 1}".to_owned()), ("g".to_owned(), "{}".to_owned())]);
    let finishes: Vec<&Value> = events
        .iter()
        .map(|event| &event["choices"][0]["finish_reason"])
        .filter(|reason| !reason.is_null())
        .collect();
    assert_eq!(finishes, ["tool_calls"]);
    assert!(reply.body.ends_with("data: [DONE]\n\n"));
}

#[tokio::test]
async fn a_turn_of_calls_alone_has_null_content() {
    let text = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
    let server = TestServer::with_parsers(|_| vec![Admit(0), Text(text), End]).await;
    let reply = server.post(PATH, &body(json!({}))).await.json();
    assert_eq!(reply["choices"][0]["message"]["content"], Value::Null);
    assert!(reply["choices"][0]["message"].get("reasoning").is_none());
}

#[tokio::test]
async fn what_is_no_call_is_text() {
    let malformed = "<tool_call>\n{\"name\": \"f\", \"arguments\": \n</tool_call>";
    let undeclared = "<tool_call>\n{\"name\": \"h\", \"arguments\": {}}\n</tool_call>";
    for text in [malformed, undeclared] {
        let server = TestServer::with_parsers(move |_| vec![Admit(0), Text(text), End]).await;
        let reply = server.post(PATH, &body(json!({}))).await.json();
        assert_eq!(reply["choices"][0]["message"]["content"], text);
        assert_eq!(reply["choices"][0]["finish_reason"], "stop");
    }
    let server = TestServer::with_parsers(|_| vec![Admit(0), Text(CALLS), End]).await;
    let reply = server.post(PATH, &body(json!({"tool_choice": "none"}))).await.json();
    assert!(reply["choices"][0]["message"]["content"].as_str().unwrap().contains("<tool_call>"));
    assert!(!server.last_prompt().contains("[tools"));
}

#[tokio::test]
async fn required_asks_for_a_call_and_fails_without_one() {
    let server = TestServer::with_parsers(|_| vec![Admit(0), Text("No."), End]).await;
    let asked = body(json!({"tool_choice": "required"}));
    let reply = server.post(PATH, &asked).await;
    reply.assert_error(422, "tool_choice_unsatisfied", Some("tool_choice"));
    let instruction = "<|im_start|>system\nAnswer by calling at least one of the tools.<|im_end|>";
    assert!(server.last_prompt().contains(instruction));
    let mut streamed = asked.clone();
    streamed["stream"] = json!(true);
    let reply = server.post(PATH, &streamed).await;
    assert_eq!(reply.events().pop().unwrap()["error"]["code"], "tool_choice_unsatisfied");
    assert!(!reply.body.contains("[DONE]"));

    let server = TestServer::with_parsers(|_| vec![Admit(0), Text(CALLS), End]).await;
    assert_eq!(server.post(PATH, &asked).await.status, 200);
}

#[tokio::test]
async fn a_named_tool_stands_alone() {
    let text = "Sure. <tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";
    let server = TestServer::with_parsers(move |_| vec![Admit(0), Text(text), End]).await;
    let named = |name: &str| body(json!({"tool_choice": {"type": "function", "function": {"name": name}}}));
    let reply = server.post(PATH, &named("g")).await.json();
    assert_eq!(reply["choices"][0]["message"]["content"], Value::Null);
    assert_eq!(reply["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "g");
    let prompt = server.last_prompt();
    assert!(prompt.contains("\"name\": \"g\"") && !prompt.contains("\"name\": \"f\""));
    assert!(!prompt.contains("Answer by calling"));
    // The model calls a tool that it was not shown, which is no call.
    server.post(PATH, &named("f")).await.assert_error(422, "tool_choice_unsatisfied", Some("tool_choice"));
    server.post(PATH, &named("h")).await.assert_error(400, "invalid_value", Some("tool_choice"));
    let none = json!({"messages": [{"role": "user", "content": "x"}], "tool_choice": "required"});
    server.post(PATH, &none).await.assert_error(400, "invalid_value", Some("tool_choice"));
}

#[tokio::test]
async fn one_call_is_shown_where_one_is_asked_for() {
    let server = TestServer::with_parsers(|_| vec![Admit(0), Text(CALLS), End]).await;
    let reply = server.post(PATH, &body(json!({"parallel_tool_calls": false}))).await.json();
    assert_eq!(reply["choices"][0]["message"]["tool_calls"].as_array().unwrap().len(), 1);
    assert_eq!(reply["choices"][0]["finish_reason"], "tool_calls");
}

#[tokio::test]
async fn system_messages_are_gathered_and_reasoning_goes_back_in() {
    let server = TestServer::with_parsers(|_| vec![Admit(0), End]).await;
    let body = json!({
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "developer", "content": "Be brief."},
            {"role": "assistant", "content": "Yes.", "reasoning": "Why not."},
            {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
            {"role": "user", "content": "So?"},
        ],
        "reasoning_effort": "high",
    });
    assert_eq!(server.post(PATH, &body).await.status, 200);
    assert_eq!(
        server.last_prompt(),
        "<|im_start|>system\nBe brief.\n\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n\
         <|im_start|>assistant\nYes.[thought Why not.]<|im_end|>\n<|im_start|>user\nSo?<|im_end|>\n\
         [effort high]<|im_start|>assistant\n"
    );
}

#[tokio::test]
async fn log_probabilities_cover_what_is_no_text_too() {
    let server = TestServer::with_parsers(|_| {
        let scored = |byte: u8| Scored(byte.into(), -0.5, &[]);
        let mut steps = vec![Admit(0)];
        steps.extend("<think>\nHm.\n</think>\n\nYes".bytes().map(scored));
        steps.push(End);
        steps
    })
    .await;
    let reply = server.post(PATH, &body(json!({"logprobs": true}))).await.json();
    let choice = &reply["choices"][0];
    assert_eq!(choice["message"]["content"], "Yes");
    assert_eq!(
        choice["logprobs"]["content"].as_array().unwrap().len(),
        "<think>\nHm.\n</think>\n\nYes".len()
    );
}

#[tokio::test]
async fn only_allowed_tools_are_called() {
    let server = TestServer::with_parsers(|_| vec![Admit(0), Text(CALLS), End]).await;
    let choose = |mode: &str, names: &[&str]| {
        let tools: Vec<Value> =
            names.iter().map(|name| json!({"type": "function", "function": {"name": name}})).collect();
        body(
            json!({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}}),
        )
    };
    let message = server.post(PATH, &choose("auto", &["g"])).await.json()["choices"][0]["message"].clone();
    let calls = message["tool_calls"].as_array().unwrap();
    assert_eq!((calls.len(), &calls[0]["function"]["name"]), (1, &json!("g")));
    assert!(message["content"].as_str().unwrap().contains("\"name\": \"f\""), "{message}");
    assert!(server.last_prompt().contains("\"name\": \"f\""), "prompts keep their prefix");
    assert_eq!(server.post(PATH, &choose("required", &["f"])).await.status, 200);
    server.post(PATH, &choose("auto", &["h"])).await.assert_error(400, "invalid_value", Some("tool_choice"));
    server.post(PATH, &choose("required", &[])).await.assert_error(400, "invalid_value", Some("tool_choice"));
}
