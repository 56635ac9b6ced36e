//! `/v1/responses`: items, events, namespaces, and what is kept.

use serde_json::{Value, json};

use super::tools::CALLS;
use super::*;

const PATH: &str = "/v1/responses";
const REQUIRED: &str = "id object created_at completed_at status incomplete_details model previous_response_id instructions \
    output error tools tool_choice truncation parallel_tool_calls text top_p presence_penalty frequency_penalty \
    top_logprobs temperature reasoning usage max_output_tokens max_tool_calls store background service_tier metadata \
    safety_identifier prompt_cache_key";

fn tools() -> Value {
    json!([
        {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": false},
        {"type": "namespace", "name": "agents", "tools": [
            {"type": "function", "name": "g", "parameters": {"type": "object"}},
        ]},
        {"type": "web_search"},
    ])
}

/// The calls of [`CALLS`] as a model makes them that sees a namespace.
const NAMESPACED: &str = "<tool_call>\n{\"name\": \"agents__g\", \"arguments\": {\"x\": 1}}\n</tool_call>";

#[tokio::test]
async fn a_stream_has_these_events_in_order() {
    let server = TestServer::with_parsers(|_| vec![Admit(2), Text(CALLS), End]).await;
    let body = json!({"model": "tests/tiny", "input": "Go", "tools": [
        {"type": "function", "name": "f"}, {"type": "function", "name": "g"}], "stream": true});
    let reply = server.post(PATH, &body).await;
    let events = reply.events();
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    let mut types = reply.event_types();
    types.dedup();
    let item = |body: &str| format!("response.output_item.added {body} response.output_item.done");
    let call = item("response.function_call_arguments.delta response.function_call_arguments.done");
    let expected = [
        "response.created response.in_progress".to_owned(),
        item("response.reasoning_text.delta response.reasoning_text.done"),
        item(
            "response.content_part.added response.output_text.delta response.output_text.done response.content_part.done",
        ),
        call.clone(),
        call,
        "response.completed".to_owned(),
    ];
    assert_eq!(types.join(" "), expected.join(" "));
    let done: Vec<&Value> = events
        .iter()
        .filter(|event| event["type"] == "response.output_item.done")
        .map(|event| &event["item"])
        .collect();
    let response = &events.last().unwrap()["response"];
    assert_eq!(response["output"].as_array().unwrap().iter().collect::<Vec<_>>(), done);
    assert_eq!(done[0]["content"], json!([{"type": "reasoning_text", "text": "Hm."}]));
    assert_eq!(done[1]["content"][0]["text"], "Let me look.");
    assert_eq!((&done[2]["name"], &done[2]["arguments"]), (&json!("f"), &json!("{\"x\": 1}")));
    assert_eq!(done[3]["status"], "completed");
    for event in &events {
        let kind = event["type"].as_str().unwrap();
        if kind.ends_with(".delta") {
            let index = event["output_index"].as_u64().unwrap() as usize;
            assert_eq!(event["item_id"], done[index]["id"]);
        }
        if kind == "response.output_text.delta" {
            assert_eq!((&event["content_index"], &event["logprobs"]), (&json!(0), &json!([])));
        }
    }
    let arguments =
        events.iter().find(|event| event["type"] == "response.function_call_arguments.done").unwrap();
    assert_eq!(arguments["name"], "f");
}

#[tokio::test]
async fn a_whole_response_has_every_required_key() {
    let server = TestServer::start(|_| vec![Admit(2), Text("Yes"), End]).await;
    let reply = server
        .post(
            PATH,
            &json!({"input": "Hi", "metadata": {"a": "b"}, "include": ["x"],
        "client_metadata": {}, "truncation": "auto"}),
        )
        .await;
    assert_eq!(reply.status, 200);
    let response = reply.json();
    for key in REQUIRED.split_whitespace() {
        assert!(response.get(key).is_some(), "{key}");
    }
    assert_eq!((&response["status"], &response["object"]), (&json!("completed"), &json!("response")));
    assert_eq!((&response["metadata"], &response["truncation"]), (&json!({"a": "b"}), &json!("auto")));
    let prompt = server.last_request().prompt.len();
    assert_eq!(
        response["usage"],
        json!({"input_tokens": prompt, "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
               "output_tokens": 4, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": prompt + 4})
    );
    assert_eq!(
        response["output"][0]["content"],
        json!([{"type": "output_text", "text": "Yes", "annotations": [], "logprobs": []}])
    );
}

#[tokio::test]
async fn calls_come_back_under_their_namespace() {
    let server = TestServer::with_parsers(|_| vec![Admit(0), Text(NAMESPACED), End]).await;
    let body = json!({"input": "Go", "tools": tools(), "store": false});
    let response = server.post(PATH, &body).await.json();
    let shown = json!({"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": false, "description": null});
    assert_eq!(response["tools"], json!([shown, tools()[1], tools()[2]]));
    let call = &response["output"][0];
    assert_eq!((&call["name"], &call["namespace"]), (&json!("g"), &json!("agents")));
    let prompt = server.last_prompt();
    assert!(prompt.contains("\"name\": \"agents__g\"") && !prompt.contains("web_search"));
}

#[tokio::test]
async fn replayed_items_make_up_the_assistants_turn() {
    let server = TestServer::with_parsers(|_| vec![Admit(0), End]).await;
    let body = json!({
        "instructions": "Be brief.",
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be kind."}]},
            {"role": "user", "content": "Hi"},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}], "encrypted_content": null},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Look:"}]},
            {"type": "function_call", "call_id": "c1", "name": "g", "namespace": "agents", "arguments": "{\"x\": 1}"},
            {"type": "function_call", "call_id": "c2", "name": "f", "arguments": ""},
            {"type": "something_new", "x": 1},
            {"type": "function_call_output", "call_id": "c1", "output": "one"},
            {"type": "function_call_output", "call_id": "c2", "output": [
                {"type": "input_text", "text": "two"}, {"type": "input_image", "image_url": "data:"}]},
            {"role": "user", "content": "Go on."},
        ],
        "reasoning": {"effort": "high", "summary": "auto"},
    });
    assert_eq!(server.post(PATH, &body).await.status, 200);
    assert_eq!(
        server.last_prompt(),
        "<|im_start|>system\nBe brief.\n\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n\
         <|im_start|>assistant\nLook:[thought Hm.][call {\"x\": 1}][call {}]<|im_end|>\n\
         <|im_start|>tool\none<|im_end|>\n\
         <|im_start|>tool\ntwo\n[An image was here, which this model cannot see.]<|im_end|>\n\
         <|im_start|>user\nGo on.<|im_end|>\n[effort high]<|im_start|>assistant\n"
    );
}

#[tokio::test]
async fn a_stored_response_is_continued_and_another_is_not_found() {
    let server =
        TestServer::with_parsers(|_| vec![Admit(0), Text("<think>\nHm.\n</think>\n\nYes"), End]).await;
    for stream in [false, true] {
        let reply =
            server.post(PATH, &json!({"input": "Hi", "instructions": "Once.", "stream": stream})).await;
        let first = if stream { reply.events().pop().unwrap()["response"].clone() } else { reply.json() };
        let next = server.post(PATH, &json!({"input": "More", "previous_response_id": first["id"]})).await;
        assert_eq!((next.status, &next.json()["previous_response_id"]), (200, &first["id"]));
        assert_eq!(
            server.last_prompt(),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes[thought Hm.]<|im_end|>\n\
             <|im_start|>user\nMore<|im_end|>\n<|im_start|>assistant\n"
        );
    }
    let unstored = server.post(PATH, &json!({"input": "Hi", "store": false})).await.json();
    let next = server.post(PATH, &json!({"input": "More", "previous_response_id": unstored["id"]})).await;
    next.assert_error(404, "previous_response_not_found", Some("previous_response_id"));
}

#[tokio::test]
async fn a_stored_response_is_shown_until_it_is_forgotten() {
    let server = TestServer::start(|_| vec![Admit(0), Text("Yes"), End]).await;
    let delete = async |path: &str| {
        server
            .send(format!("DELETE {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes())
            .await
    };
    for stream in [false, true] {
        let reply = server.post(PATH, &json!({"input": "Hi", "stream": stream})).await;
        let response = if stream { reply.events().pop().unwrap()["response"].clone() } else { reply.json() };
        let path = format!("{PATH}/{}", response["id"].as_str().unwrap());
        let shown = server.get(&path).await;
        assert_eq!((shown.status, shown.json()), (200, response.clone()));
        assert_eq!(
            delete(&path).await.json(),
            json!({"id": response["id"], "object": "response", "deleted": true})
        );
        server.get(&path).await.assert_error(404, "response_not_found", None);
        delete(&path).await.assert_error(404, "response_not_found", None);
        let next = json!({"input": "More", "previous_response_id": response["id"]});
        server.post(PATH, &next).await.assert_error(
            404,
            "previous_response_not_found",
            Some("previous_response_id"),
        );
    }
}

#[tokio::test]
async fn log_probabilities_come_with_the_text_that_they_are_of() {
    let script = || {
        let yes: &[(u32, f32)] = &[(89, -0.5), (78, -1.0)];
        vec![Admit(0), Scored(u32::from(b'Y'), -0.5, yes), Scored(u32::from(b'!'), -2.0, &[]), End]
    };
    let server = TestServer::start(move |_| script()).await;
    let top =
        |token: &str, logprob: f64| json!({"token": token, "logprob": logprob, "bytes": token.as_bytes()});
    let entry = |token: &str, logprob: f64, tops: Value| {
        let mut entry = top(token, logprob);
        entry["top_logprobs"] = tops;
        entry
    };
    let first = entry("Y", -0.5, json!([top("Y", -0.5), top("N", -1.0)]));
    let second = entry("!", -2.0, json!([]));
    let body = json!({"input": "Hi", "top_logprobs": 2, "include": ["message.output_text.logprobs"]});
    let response = server.post(PATH, &body).await.json();
    assert_eq!(response["top_logprobs"], 2);
    assert_eq!(response["output"][0]["content"][0]["logprobs"], json!([first, second]));
    assert_eq!(server.last_request().logprobs, Some(2));

    let body = json!({"input": "Hi", "include": ["message.output_text.logprobs"], "stream": true});
    let events = server.post(PATH, &body).await.events();
    assert_eq!(server.last_request().logprobs, Some(0));
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).collect::<Vec<_>>();
    let deltas = of("response.output_text.delta");
    assert_eq!((&deltas[0]["logprobs"], &deltas[1]["logprobs"]), (&json!([first]), &json!([second])));
    assert_eq!(of("response.output_text.done")[0]["logprobs"], json!([first, second]));
    server.post(PATH, &json!({"input": "Hi"})).await;
    assert_eq!(server.last_request().logprobs, None);
}

#[tokio::test]
async fn tokens_of_a_call_make_no_message() {
    let call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
    let scored = |byte: u8| Scored(byte.into(), -0.5, &[]);
    let server = TestServer::with_parsers(move |_| {
        [vec![Admit(0)], call.bytes().map(scored).collect(), vec![End]].concat()
    })
    .await;
    let body = json!({"input": "Go", "tools": [{"type": "function", "name": "f"}], "top_logprobs": 1});
    let output = server.post(PATH, &body).await.json()["output"].clone();
    assert_eq!((output.as_array().unwrap().len(), &output[0]["type"]), (1, &json!("function_call")));
}

#[tokio::test]
async fn only_allowed_tools_are_called() {
    let server = TestServer::with_parsers(|_| vec![Admit(0), Text(NAMESPACED), End]).await;
    let ask = |mode: &str, allowed: Value| {
        json!({"input": "Go", "tools": tools(),
            "tool_choice": {"type": "allowed_tools", "mode": mode, "tools": allowed}})
    };
    let g = json!({"type": "function", "name": "g", "namespace": "agents"});
    let f = json!({"type": "function", "name": "f"});
    let response = server.post(PATH, &ask("auto", json!([g, {"type": "web_search"}]))).await.json();
    assert_eq!(response["output"][0]["type"], "function_call");
    let response = server.post(PATH, &ask("auto", json!([f]))).await.json();
    assert_eq!(response["output"][0]["content"][0]["text"], NAMESPACED);
    assert!(server.last_prompt().contains("agents__g"), "prompts keep their prefix");
    let required = server.post(PATH, &ask("required", json!([f]))).await;
    required.assert_error(422, "tool_choice_unsatisfied", Some("tool_choice"));
    for (mode, allowed, param) in [
        ("auto", json!([{"type": "function", "name": "h"}]), "tool_choice"),
        ("required", json!([]), "tool_choice"),
        ("sometimes", json!([f]), "tool_choice.mode"),
        ("auto", json!([{"type": "function"}]), "tool_choice.tools[0].name"),
    ] {
        assert_eq!(server.post(PATH, &ask(mode, allowed)).await.json()["error"]["param"], param);
    }
}

#[tokio::test]
async fn a_response_that_is_cut_off_or_fails_says_so() {
    let server = TestServer::start(|_| vec![Admit(0), Text("Ye"), Length]).await;
    let reply = server.post(PATH, &json!({"input": "Hi", "max_output_tokens": 2, "stream": true})).await;
    let last = reply.events().pop().unwrap();
    assert_eq!(last["type"], "response.incomplete");
    assert_eq!(last["response"]["incomplete_details"], json!({"reason": "max_output_tokens"}));
    assert_eq!(last["response"]["output"][0]["status"], "incomplete");

    let failure = EngineError::Execution("secret".into());
    let server = TestServer::start(move |_| vec![Admit(0), Text("Ye"), Fail(failure.clone())]).await;
    let reply = server.post(PATH, &json!({"input": "Hi", "stream": true})).await;
    let last = reply.events().pop().unwrap();
    assert_eq!((&last["type"], &last["response"]["status"]), (&json!("response.failed"), &json!("failed")));
    assert_eq!(last["response"]["error"]["code"], "server_error");
    assert!(!reply.body.contains("secret"));
}

#[tokio::test]
async fn silence_is_filled_with_events() {
    let server = TestServer::with_a_silence().await;
    let reply = server.post(PATH, &json!({"input": "Hi", "stream": true})).await;
    assert!(reply.event_types().iter().filter(|kind| *kind == "keepalive").count() >= 2);
    for (number, event) in reply.events().iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
}

#[tokio::test]
async fn wrong_fields_are_named() {
    let server = TestServer::with_parsers(|_| vec![Admit(0), End]).await;
    for (body, code, param) in [
        (json!({}), "missing_required_parameter", "input"),
        (json!({"input": 3}), "invalid_type", "input"),
        (json!({"input": []}), "invalid_value", "input"),
        (json!({"input": [{"role": "robot", "content": "x"}]}), "invalid_value", "input[0].role"),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}),
            "unsupported_parameter",
            "input[0].content[0].type",
        ),
        (
            json!({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{"}]}),
            "invalid_value",
            "input[0].arguments",
        ),
        (json!({"input": "x", "background": true}), "unsupported_parameter", "background"),
        (json!({"input": "x", "conversation": "c"}), "unsupported_parameter", "conversation"),
        (
            json!({"input": "x", "tools": [{"type": "function", "name": "f", "strict": 1}]}),
            "invalid_type",
            "tools[0].strict",
        ),
        (
            json!({"input": "x", "tool_choice": {"type": "function", "name": "f"}}),
            "invalid_value",
            "tool_choice",
        ),
        (json!({"input": "x".repeat(CONTEXT as usize)}), "context_length_exceeded", "input"),
    ] {
        server.post(PATH, &body).await.assert_error(400, code, Some(param));
    }
}
