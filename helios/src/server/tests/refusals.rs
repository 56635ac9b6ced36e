//! Every way to be refused: the status, the code and the field.

use std::sync::atomic::AtomicUsize;

use axum::body::Body;
use axum::http::Request;
use proptest::prelude::*;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const PATHS: &[&str] = &[
    CHAT,
    COMPLETIONS,
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/tokenize",
    "/detokenize",
];

/// Changes to a valid chat body, the code that they are refused with, and the field that is named.
#[rustfmt::skip]
const CHAT_CASES: &[(&str, &str, &str)] = &[
    (r#"{"messages": null}"#, "missing_required_parameter", "messages"),
    (r#"{"messages": []}"#, "invalid_value", "messages"),
    (r#"{"messages": "hi"}"#, "invalid_type", "messages"),
    (r#"{"messages": [1]}"#, "invalid_type", "messages[0]"),
    (r#"{"messages": [{"content": "x"}]}"#, "missing_required_parameter", "messages[0].role"),
    (r#"{"messages": [{"role": "robot", "content": "x"}]}"#, "invalid_value", "messages[0].role"),
    (r#"{"messages": [{"role": "user"}]}"#, "missing_required_parameter", "messages[0].content"),
    (r#"{"messages": [{"role": "user", "content": 5}]}"#, "invalid_type", "messages[0].content"),
    (r#"{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}"#, "unsupported_parameter", "messages[0].content[0].type"),
    (r#"{"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}"#, "unsupported_parameter", "messages[0].content[0].type"),
    (r#"{"messages": [{"role": "user", "content": [{"type": "text"}]}]}"#, "missing_required_parameter", "messages[0].content[0].text"),
    (r#"{"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{"}}]}]}"#, "invalid_value", "messages[0].tool_calls[0].function.arguments"),
    (r#"{"chat_template_kwargs": {"refuse": true}}"#, "template_error", "messages"),
    (r#"{"chat_template_kwargs": []}"#, "invalid_type", "chat_template_kwargs"),
    (r#"{"model": 3}"#, "invalid_type", "model"),
    (r#"{"temperature": 0}"#, "invalid_value", "temperature"),
    (r#"{"temperature": 1e-60}"#, "invalid_value", "temperature"),
    (r#"{"temperature": 2.5}"#, "invalid_value", "temperature"),
    (r#"{"temperature": "1"}"#, "invalid_type", "temperature"),
    (r#"{"top_p": 0}"#, "invalid_value", "top_p"),
    (r#"{"top_p": 1.1}"#, "invalid_value", "top_p"),
    (r#"{"top_k": -2}"#, "invalid_value", "top_k"),
    (r#"{"top_k": 1.5}"#, "invalid_type", "top_k"),
    (r#"{"min_p": -0.1}"#, "invalid_value", "min_p"),
    (r#"{"repetition_penalty": 0}"#, "invalid_value", "repetition_penalty"),
    (r#"{"presence_penalty": 2.1}"#, "invalid_value", "presence_penalty"),
    (r#"{"frequency_penalty": -2.1}"#, "invalid_value", "frequency_penalty"),
    (r#"{"n": 0}"#, "invalid_value", "n"),
    (r#"{"n": 129}"#, "invalid_value", "n"),
    (r#"{"n": true}"#, "invalid_type", "n"),
    (r#"{"seed": 1.5}"#, "invalid_type", "seed"),
    (r#"{"seed": "1"}"#, "invalid_type", "seed"),
    (r#"{"max_tokens": 0}"#, "invalid_value", "max_tokens"),
    (r#"{"max_completion_tokens": -1}"#, "invalid_value", "max_completion_tokens"),
    (r#"{"stop": ""}"#, "invalid_value", "stop"),
    (r#"{"stop": ["a", 1]}"#, "invalid_type", "stop"),
    (r#"{"stream": "yes"}"#, "invalid_type", "stream"),
    (r#"{"stream_options": true}"#, "invalid_type", "stream_options"),
    (r#"{"stream_options": {"include_usage": 1}}"#, "invalid_type", "stream_options.include_usage"),
    (r#"{"logit_bias": [1]}"#, "invalid_type", "logit_bias"),
    (r#"{"logit_bias": {"270": 1}}"#, "invalid_value", "logit_bias"),
    (r#"{"logit_bias": {"-1": 1}}"#, "invalid_value", "logit_bias"),
    (r#"{"logit_bias": {"1": 101}}"#, "invalid_value", "logit_bias.1"),
    (r#"{"logit_bias": {"1": 1, "2": 1, "3": 1, "4": 1, "5": 1}}"#, "invalid_value", "logit_bias"),
    (r#"{"logprobs": 1}"#, "invalid_type", "logprobs"),
    (r#"{"top_logprobs": 2}"#, "invalid_value", "top_logprobs"),
    (r#"{"logprobs": true, "top_logprobs": 21}"#, "invalid_value", "top_logprobs"),
    (r#"{"response_format": "json_object"}"#, "invalid_type", "response_format"),
    (r#"{"modalities": ["text", "audio"]}"#, "unsupported_parameter", "modalities"),
    (r#"{"messages": [{"role": "assistant", "content": "x", "reasoning_content": 1}]}"#, "invalid_type", "messages[0].reasoning_content"),
    (r#"{"reasoning_effort": 1}"#, "invalid_type", "reasoning_effort"),
    (r#"{"parallel_tool_calls": 1}"#, "invalid_type", "parallel_tool_calls"),
    (r#"{"tools": [1]}"#, "invalid_type", "tools[0]"),
    (r#"{"tools": [{"function": {"name": "f", "strict": 1}}]}"#, "invalid_type", "tools[0].function.strict"),
    (r#"{"tool_choice": "sometimes"}"#, "invalid_value", "tool_choice"),
    (r#"{"tool_choice": {"type": "custom"}}"#, "unsupported_parameter", "tool_choice"),
    (r#"{"tool_choice": {"function": {}}}"#, "missing_required_parameter", "tool_choice.function.name"),
    (r#"{"tools": [{}], "tool_choice": "required"}"#, "unsupported_parameter", "tool_choice"),
    (r#"{"continue_final_message": true}"#, "invalid_value", "continue_final_message"),
    (r#"{"continue_final_message": true, "add_generation_prompt": true}"#, "invalid_value", "continue_final_message"),
    (r#"{"ignore_eos": 0}"#, "invalid_type", "ignore_eos"),
    (r#"{"cache_salt": ""}"#, "invalid_value", "cache_salt"),
    (r#"{"cache_salt": 7}"#, "invalid_type", "cache_salt"),
];

/// Bodies of completions, likewise.
#[rustfmt::skip]
const COMPLETION_CASES: &[(&str, &str, &str)] = &[
    (r#"{}"#, "missing_required_parameter", "prompt"),
    (r#"{"prompt": ""}"#, "invalid_value", "prompt"),
    (r#"{"prompt": []}"#, "invalid_value", "prompt"),
    (r#"{"prompt": [[]]}"#, "invalid_value", "prompt"),
    (r#"{"prompt": 3}"#, "invalid_type", "prompt"),
    (r#"{"prompt": [1, "a"]}"#, "invalid_type", "prompt"),
    (r#"{"prompt": [1.5]}"#, "invalid_type", "prompt"),
    (r#"{"prompt": [270]}"#, "invalid_value", "prompt"),
    (r#"{"prompt": [-1]}"#, "invalid_value", "prompt"),
    (r#"{"prompt": "a", "max_tokens": -1}"#, "invalid_value", "max_tokens"),
    (r#"{"prompt": "a", "suffix": "b"}"#, "unsupported_parameter", "suffix"),
    (r#"{"prompt": "a", "echo": true, "logprobs": 1}"#, "unsupported_parameter", "echo"),
    (r#"{"prompt": "a", "logprobs": true}"#, "invalid_type", "logprobs"),
    (r#"{"prompt": "a", "best_of": 2}"#, "unsupported_parameter", "best_of"),
];

fn hello_with(change: &Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "Hi"}]});
    for (key, value) in change.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

#[tokio::test]
async fn each_chat_field_is_checked_under_its_own_name() {
    let server = TestServer::start(|_| vec![Admit(0), End]).await;
    let mut cases: Vec<(Value, &str, &str)> = CHAT_CASES
        .iter()
        .map(|(change, code, param)| (serde_json::from_str(change).unwrap(), *code, *param))
        .collect();
    let long = "x".repeat(CONTEXT as usize);
    cases.extend([
        (json!({"messages": [{"role": "user", "content": long}]}), "context_length_exceeded", "messages"),
        (json!({"stop": vec!["a"; 17]}), "invalid_value", "stop"),
        (json!({"stop": "x".repeat(1025)}), "invalid_value", "stop"),
        (json!({"cache_salt": "x".repeat(257)}), "invalid_value", "cache_salt"),
    ]);
    for (change, code, param) in cases {
        server.post(CHAT, &hello_with(&change)).await.assert_error(400, code, Some(param));
    }
    assert!(server.requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn each_completion_field_is_checked_under_its_own_name() {
    let server = TestServer::start(|_| vec![Admit(0), End]).await;
    let mut cases: Vec<(Value, &str, &str)> = COMPLETION_CASES
        .iter()
        .map(|(body, code, param)| (serde_json::from_str(body).unwrap(), *code, *param))
        .collect();
    let long = "x".repeat(CONTEXT as usize);
    cases.extend([
        (json!({"prompt": vec!["a"; 129]}), "invalid_value", "prompt"),
        (json!({"prompt": vec!["a"; 65], "n": 2}), "invalid_value", "n"),
        (json!({"prompt": long}), "context_length_exceeded", "prompt"),
    ]);
    for (body, code, param) in cases {
        server.post(COMPLETIONS, &body).await.assert_error(400, code, Some(param));
    }
    assert!(server.requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn temperature_zero_says_what_gives_the_same_or_gives_it() {
    let body = json!({"prompt": "a", "temperature": 0});
    let server = TestServer::start(|_| vec![Admit(0), End]).await;
    assert!(server.post(COMPLETIONS, &body).await.body.contains("`top_k: 1` gives the same"));
    let server =
        TestServer::with_config(quick_config(), ZeroTemperature::Top1, |_| vec![Admit(0), End]).await;
    assert_eq!(server.post(COMPLETIONS, &body).await.status, 200);
    let sampling = server.last_request().sampling;
    assert_eq!((sampling.temperature, sampling.top_k), (1.0, 1));
}

#[tokio::test]
async fn wrong_urls_methods_and_bodies_get_the_envelope() {
    let server = TestServer::start(|_| vec![Admit(0), End]).await;
    server.get("/nowhere").await.assert_error(404, "unknown_url", None);
    server.get(CHAT).await.assert_error(405, "method_not_allowed", None);
    server.send(&post("/health", "{}")).await.assert_error(405, "method_not_allowed", None);
    for broken in ["", "{", "{\"prompt\": \"\\ud800\"}", "nul", &"[".repeat(5000)] {
        server.send(&post(COMPLETIONS, broken)).await.assert_error(400, "invalid_json", None);
    }
    server.send(&post(COMPLETIONS, "[1]")).await.assert_error(400, "invalid_type", None);
    let mut invalid_utf8 = post(COMPLETIONS, "{\"prompt\": \"??\"}");
    let at = invalid_utf8.len() - 4;
    invalid_utf8[at] = 0xFF;
    server.send(&invalid_utf8).await.assert_error(400, "invalid_json", None);
    let plain = String::from_utf8(post(COMPLETIONS, "{\"prompt\": \"a\"}")).unwrap();
    let plain = plain.replace("application/json", "text/plain");
    server.send(plain.as_bytes()).await.assert_error(415, "unsupported_media_type", None);
    let head = server.send(b"HEAD / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!(server.get("/").await.json()["name"], "flare");
}

#[tokio::test]
async fn engine_refusals_have_their_status_and_keep_their_secrets() {
    let cases = [
        (EngineError::QueueFull { waiting: 9 }, 503, "queue_full"),
        (EngineError::ShuttingDown, 503, "shutting_down"),
        (
            EngineError::PromptTooLong { prompt_tokens: 9, context_tokens_max: 8 },
            400,
            "context_length_exceeded",
        ),
        (EngineError::PoolTooSmall { pages: 2, pages_max: 1 }, 400, "context_length_exceeded"),
        (EngineError::Unsupported("no such thing".into()), 400, "unsupported_parameter"),
        (EngineError::Execution("secret at 0xdeadbeef".into()), 500, "execution_failed"),
    ];
    for (error, status, code) in cases {
        for stream in [false, true] {
            let failure = error.clone();
            let server = TestServer::start(move |_| vec![Fail(failure.clone())]).await;
            let reply = server.post(COMPLETIONS, &json!({"prompt": "a", "stream": stream})).await;
            reply.assert_error(status, code, None);
            assert_eq!(reply.headers.contains_key("retry-after"), status == 503);
            assert!(!reply.body.contains("0xdeadbeef"));
        }
    }
}

#[tokio::test]
async fn a_failure_after_admission_is_an_error_event_or_an_error() {
    let failure = EngineError::Execution("secret".into());
    let server = TestServer::start(move |_| vec![Admit(0), Text("ab"), Fail(failure.clone())]).await;
    let reply =
        server.post(CHAT, &json!({"messages": [{"role": "user", "content": "x"}], "stream": true})).await;
    assert_eq!(reply.status, 200);
    let last = reply.events().pop().unwrap();
    assert_eq!(last["error"]["code"], "execution_failed");
    assert_eq!(last["error"].as_object().unwrap().len(), 4);
    assert!(!reply.body.contains("[DONE]") && !reply.body.contains("secret"));
    server.post(COMPLETIONS, &json!({"prompt": "x"})).await.assert_error(500, "execution_failed", None);
}

#[tokio::test]
async fn an_engine_that_vanishes_is_an_error_not_an_end() {
    let server = TestServer::start(|_| vec![Admit(0), Text("ab")]).await;
    let reply = server.post(COMPLETIONS, &json!({"prompt": "x", "stream": true})).await;
    assert_eq!(reply.events().pop().unwrap()["error"]["code"], "execution_failed");
    assert!(!reply.body.contains("[DONE]"));
}

#[tokio::test]
async fn a_panic_is_an_error_without_its_text() {
    let router = axum::Router::new()
        .route("/", axum::routing::get(async || -> &'static str { panic!("secret") }))
        .layer(tower_http::catch_panic::CatchPanicLayer::custom(super::super::routes::panicked));
    let response = router.oneshot(Request::get("/").body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 500);
    let body = axum::body::to_bytes(response.into_body(), 1 << 16).await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["error"]["code"], "internal_error");
    assert!(!body.to_string().contains("secret"));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (-3i64..130).prop_map(Value::from),
        (-1.0..3.0f64).prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
        prop::sample::select(vec![
            "user",
            "assistant",
            "tool",
            "text",
            "tiny",
            "auto",
            "function",
            "tool_use",
            "tool_result",
            "thinking",
            "required",
            "function_call",
            "function_call_output",
            "reasoning",
            "namespace",
            "input_text",
            "image",
            "any",
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(field(), inner, 0..4).prop_map(Value::from_iter),
        ]
    })
}

fn field() -> impl Strategy<Value = String> {
    let names = "role content type text tool_calls function arguments name include_usage 5 messages prompt \
        thinking tool_use_id id call_id output input is_error input_schema tools";
    prop::sample::select(names.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
}

fn any_body() -> impl Strategy<Value = Value> {
    let names = "model messages prompt n stop seed max_tokens max_completion_tokens temperature top_k top_p min_p \
        repetition_penalty presence_penalty frequency_penalty logit_bias logprobs top_logprobs stream \
        stream_options ignore_eos cache_salt echo suffix add_generation_prompt continue_final_message \
        chat_template_kwargs tools tool_choice response_format modalities audio best_of add_special_tokens x \
        input instructions store previous_response_id text reasoning system stop_sequences thinking output_config tokens";
    let names: Vec<String> = names.split_whitespace().map(str::to_owned).collect();
    let messages = prop::collection::vec(
        prop::collection::hash_map(field(), any_json(), 0..4).prop_map(Value::from_iter),
        0..3,
    )
    .prop_map(Value::from);
    let base = prop_oneof![
        Just(json!({"messages": [{"role": "user", "content": "Hi"}], "prompt": "Hi", "input": "Hi"})),
        messages.prop_map(|messages| json!({"messages": messages, "prompt": "Hi", "input": messages})),
    ];
    (base, prop::collection::hash_map(prop::sample::select(names), any_json(), 0..6)).prop_map(
        |(mut body, changes)| {
            for (key, value) in changes.into_iter().collect::<std::collections::BTreeMap<_, _>>() {
                body[key] = value;
            }
            body
        },
    )
}

#[test]
fn no_json_body_is_a_fault_of_the_server() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let script: Arc<Script> = Arc::new(|_: &GenerationRequest| vec![Admit(0), Text("ok"), End]);
    let service = service(
        quick_config(),
        ZeroTemperature::Reject,
        PARSERS,
        Arc::default(),
        Arc::new(AtomicUsize::new(0)),
        script,
    );
    let router = super::super::routes::router(service);
    let seen = std::cell::RefCell::new(std::collections::BTreeSet::new());
    proptest!(ProptestConfig::with_cases(1000), |(body in any_body(), path in prop::sample::select(PATHS))| {
        let request = Request::post(path).header("content-type", "application/json");
        let request = request.body(Body::from(body.to_string())).unwrap();
        let response = runtime.block_on(router.clone().oneshot(request)).unwrap();
        let status = response.status().as_u16();
        seen.borrow_mut().insert(status);
        prop_assert!(matches!(status, 200 | 400 | 404 | 422), "{} for {} at {}", status, body, path);
        let bytes = runtime.block_on(axum::body::to_bytes(response.into_body(), 1 << 24)).unwrap();
        prop_assert!(!bytes.is_empty());
    });
    assert!(seen.borrow().contains(&200), "some bodies are valid: {:?}", seen.borrow());
}
