//! Keys, origins, time limits, and the routes beside the four APIs.

use serde_json::json;

use super::super::{ApiKey, CorsOrigin};
use super::*;
use crate::ids::ClientId;

const PATH: &str = "/v1/completions";

fn with_headers(path: &str, headers: &str) -> Vec<u8> {
    let request = String::from_utf8(post(path, "{\"prompt\": \"a\"}")).unwrap();
    request.replacen("host: x\r\n", &format!("host: x\r\n{headers}"), 1).into_bytes()
}

#[tokio::test]
async fn more_answers_than_a_key_can_ever_have_waiting_are_refused_for_good() {
    let api_keys: Vec<_> = (0..=WAITING_MAX / 3).map(|key| ApiKey::new(&key.to_string())).collect();
    let config = ServerConfig { api_keys, ..quick_config() };
    let server = TestServer::with_config(config, ZeroTemperature::Reject, |_| vec![Admit(0), End]).await;
    for (prompt, n, status) in [(json!("a"), 2, 200), (json!("a"), 3, 400), (json!(["a", "b"]), 2, 400)] {
        let body = json!({"prompt": prompt, "n": n}).to_string();
        let request = String::from_utf8(post(PATH, &body)).unwrap();
        let request = request.replacen("host: x\r\n", "host: x\r\nx-api-key: 1\r\n", 1);
        let reply = server.send(request.as_bytes()).await;
        assert_eq!(reply.status, status, "{body}: {}", reply.body);
        if status == 400 {
            reply.assert_error(400, "invalid_value", Some("n"));
        }
    }
}

#[tokio::test]
async fn a_key_is_needed_everywhere_but_at_the_door() {
    let api_keys = vec![ApiKey::new("one"), ApiKey::new("two")];
    assert!(!format!("{api_keys:?}").contains("one"));
    let config =
        ServerConfig { api_keys, cors_origins: vec!["https://a.example".parse().unwrap()], ..quick_config() };
    let server = TestServer::with_config(config, ZeroTemperature::Reject, |_| vec![Admit(0), End]).await;
    for headers in ["authorization: Bearer one\r\n", "authorization: bearer two\r\n", "x-api-key: one\r\n"] {
        assert_eq!(server.send(&with_headers(PATH, headers)).await.status, 200, "{headers}");
    }
    for headers in ["", "authorization: Bearer on\r\n", "authorization: Basic one\r\n", "x-api-key: \r\n"] {
        let reply = server.send(&with_headers(PATH, headers)).await;
        reply.assert_error(401, "invalid_api_key", None);
        server
            .send(&with_headers("/v1/messages", headers))
            .await
            .assert_anthropic_error(401, "authentication_error");
    }
    server.get("/v1/models").await.assert_error(401, "invalid_api_key", None);
    server.get("/nowhere").await.assert_error(401, "invalid_api_key", None);
    assert_eq!(server.get("/health").await.status, 200);
    let head = server.send(b"HEAD / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert_eq!(head.status, 200);
    let preflight = server.send(b"OPTIONS /v1/messages HTTP/1.1\r\nhost: x\r\nconnection: close\r\norigin: https://a.example\r\naccess-control-request-method: POST\r\naccess-control-request-headers: x-own,content-type\r\n\r\n").await;
    assert_eq!(preflight.status, 200);
    assert_eq!(preflight.headers["access-control-allow-origin"], "https://a.example");
    assert_eq!(preflight.headers["access-control-allow-headers"], "x-own,content-type");
    assert!(preflight.headers.contains_key("x-request-id"));
}

#[tokio::test]
async fn a_key_is_a_client_with_its_share_of_the_queue() {
    let api_keys = ["one", "two", "three", "four"].map(ApiKey::new).to_vec();
    let share = WAITING_MAX as usize / api_keys.len();
    let config = ServerConfig { api_keys, ..quick_config() };
    let server = TestServer::with_config(config, ZeroTemperature::Reject, |_| vec![Hang]).await;
    let ask = |key: &str, n: usize| {
        let request = String::from_utf8(post(PATH, &json!({"prompt": "a", "n": n}).to_string())).unwrap();
        request.replacen("host: x\r\n", &format!("host: x\r\nx-api-key: {key}\r\n"), 1)
    };
    let filling = server.open(ask("three", share).as_bytes()).await;
    server.wait_for_requests(share).await;
    assert!(server.requests.lock().unwrap().iter().all(|request| request.client == ClientId(2)));
    let refused = server.send(ask("three", 1).as_bytes()).await;
    refused.assert_error(503, "queue_full", None);
    assert!(refused.body.contains("its share"), "{}", refused.body);
    let other = server.open(ask("two", 1).as_bytes()).await;
    server.wait_for_requests(share + 1).await;
    assert_eq!(server.last_request().client, ClientId(1));
    assert_eq!(server.service.engine.stats().requests_refused, 1);
    drop((filling, other));
    server.wait_for_cancelled(share + 1).await;
}

#[tokio::test]
async fn pages_of_other_origins_stay_out() {
    let origin = "origin: https://b.example\r\n";
    let server = TestServer::start(|_| vec![Admit(0), End]).await;
    let reply = server.send(&with_headers(PATH, origin)).await;
    assert!(!reply.headers.contains_key("access-control-allow-origin"));
    for (allowed, shown) in
        [("https://a.example", None), ("*", Some("*")), ("https://b.example", Some("https://b.example"))]
    {
        let cors_origins: Vec<CorsOrigin> = vec![allowed.parse().unwrap()];
        let config = ServerConfig { cors_origins, ..quick_config() };
        let server = TestServer::with_config(config, ZeroTemperature::Reject, |_| vec![Admit(0), End]).await;
        let reply = server.send(&with_headers(PATH, origin)).await;
        assert_eq!(reply.headers.get("access-control-allow-origin").map(String::as_str), shown);
    }
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_ended_and_cancelled() {
    let config = ServerConfig { request_timeout: Some(Duration::from_millis(60)), ..quick_config() };
    for (cancelled, steps) in [vec![Hang], vec![Admit(0), Text("a"), Hang]].into_iter().enumerate() {
        let server =
            TestServer::with_config(config.clone(), ZeroTemperature::Reject, move |_| steps.clone()).await;
        let body = json!({"prompt": "a"});
        server.post(PATH, &body).await.assert_error(504, "generation_timeout", None);
        server.wait_for_cancelled(1).await;
        if cancelled == 1 {
            let reply = server.post(PATH, &json!({"prompt": "a", "stream": true})).await;
            assert_eq!(reply.events().pop().unwrap()["error"]["code"], "generation_timeout");
        }
    }
}

#[tokio::test]
async fn texts_and_conversations_are_tokenized() {
    let server = TestServer::start(|_| vec![Admit(0), End]).await;
    let reply =
        server.post("/tokenize", &json!({"prompt": "hey<|im_end|>", "return_token_strs": true})).await.json();
    assert_eq!(
        reply,
        json!({"count": 3, "max_model_len": CONTEXT, "tokens": [256, 121, 260], "token_strs": ["he", "y", "<|im_end|>"]})
    );
    let back = server.post("/detokenize", &json!({"tokens": [256, 121]})).await.json();
    assert_eq!(back, json!({"prompt": "hey"}));
    let messages = json!({"messages": [{"role": "user", "content": "Hi"}]});
    let tokens = server.post("/tokenize", &messages).await.json()["tokens"].clone();
    server.post("/v1/chat/completions", &messages).await;
    let prompt: Vec<u32> = server.last_request().prompt.iter().map(|token| token.0).collect();
    assert_eq!(tokens, json!(prompt));
    server.post("/tokenize", &json!({})).await.assert_error(
        400,
        "missing_required_parameter",
        Some("prompt"),
    );
    server.post("/detokenize", &json!({"tokens": [1.5]})).await.assert_error(
        400,
        "invalid_type",
        Some("tokens"),
    );
    server.post("/detokenize", &json!({"tokens": [270]})).await.assert_error(
        400,
        "invalid_value",
        Some("tokens"),
    );
}
