//! Cancellation in every phase, keepalive, health and shutdown.

use serde_json::json;

use super::*;

const PATH: &str = "/v1/completions";

#[tokio::test]
async fn a_client_that_leaves_cancels_in_every_phase() {
    let phases = [
        ("queued", vec![Hang]),
        ("prefill", vec![Admit(0), Hang]),
        ("decoding", vec![Admit(0), Text("abc"), Hang]),
    ];
    for (phase, steps) in phases {
        for stream in [false, true] {
            let script = steps.clone();
            let server = TestServer::start(move |_| script.clone()).await;
            let body = json!({"prompt": "a", "n": 2, "stream": stream}).to_string();
            let connection = server.open(&post(PATH, &body)).await;
            server.wait_for_requests(2).await;
            sleep(Duration::from_millis(20)).await;
            assert_eq!(server.cancelled.load(Ordering::SeqCst), 0, "{phase} {stream}");
            drop(connection);
            server.wait_for_cancelled(2).await;
        }
    }
}

#[tokio::test]
async fn headers_wait_for_admission() {
    let server = TestServer::start(|_| vec![Pause(120), Admit(0), Text("a"), End]).await;
    let mut stream = server.open(&post(PATH, &json!({"prompt": "a", "stream": true}).to_string())).await;
    let mut byte = [0];
    assert!(timeout(Duration::from_millis(60), stream.read(&mut byte)).await.is_err());
    assert!(read_until(&mut stream, "[DONE]").await.contains("200 OK"));
}

#[tokio::test]
async fn a_group_starts_with_its_first_admission() {
    let server = TestServer::start(|request| match request.sampling.seed {
        1 => vec![Hang],
        _ => vec![Admit(0), Text("a"), End],
    })
    .await;
    let body = json!({"prompt": "a", "stream": true, "n": 2, "seed": 1});
    let mut stream = server.open(&post(PATH, &body.to_string())).await;
    read_until(&mut stream, "\"finish_reason\":\"stop\"").await;
    drop(stream);
    server.wait_for_cancelled(1).await;
}

#[tokio::test]
async fn silence_is_filled_with_comments() {
    let server = TestServer::with_a_silence().await;
    let reply = server.post(PATH, &json!({"prompt": "a", "stream": true})).await;
    assert!(reply.body.starts_with(": keepalive\n\n: keepalive\n\n"));
    assert_eq!(reply.events().len(), 2);
    assert!(reply.body.ends_with("data: [DONE]\n\n"));
}

/// Streamed requests, one an API, and what fills their silence.
fn streams() -> [(&'static str, serde_json::Value, &'static str); 4] {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    [
        ("/v1/chat/completions", json!({"messages": messages, "stream": true}), ": keepalive\n\n"),
        ("/v1/completions", json!({"prompt": "Hi", "stream": true}), ": keepalive\n\n"),
        (
            "/v1/responses",
            json!({"input": "Hi", "stream": true}),
            "event: keepalive\ndata: {\"type\":\"keepalive\"",
        ),
        (
            "/v1/messages",
            json!({"messages": messages, "max_tokens": 9, "stream": true}),
            "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        ),
    ]
}

/// A server that fills a silence soon.
async fn restless(script: impl Fn(&GenerationRequest) -> Vec<Step> + Send + Sync + 'static) -> TestServer {
    let config = ServerConfig { keepalive_interval: Duration::from_millis(5), ..quick_config() };
    TestServer::with_config(config, ZeroTemperature::Reject, script).await
}

/// Every API's stream begins, and its silence is filled in its own way.
async fn hears_of(server: &TestServer) {
    for (path, body, sign) in streams() {
        let mut stream = server.open(&post(path, &body.to_string())).await;
        let first = read_until(&mut stream, sign).await;
        assert!(first.starts_with("HTTP/1.1 200"), "{first}");
        // Anthropic's stream begins with a ping, so a second one is what shows it.
        read_until(&mut stream, sign).await;
    }
}

#[tokio::test]
async fn a_long_prefill_is_filled_in_the_way_of_each_api() {
    hears_of(&restless(|_| vec![Admit(0), Hang]).await).await;
}

#[tokio::test]
async fn who_waits_in_line_hears_of_the_server() {
    hears_of(&restless(|_| vec![Hang]).await).await;
}

#[tokio::test]
async fn what_is_refused_after_a_wait_ends_its_stream_with_an_error() {
    let server = restless(|_| vec![Pause(200), Fail(EngineError::ShuttingDown)]).await;
    for (path, body, sign) in streams() {
        let reply = server.post(path, &body).await;
        assert_eq!(reply.status, 200, "{path}");
        let (waited, end) = (reply.body.find(sign), reply.body.rfind("error"));
        assert!(waited.is_some() && waited < end, "{path}: {}", reply.body);
        assert!(!reply.body.contains("[DONE]"), "{path}: {}", reply.body);
    }
}

#[tokio::test]
async fn what_is_refused_before_it_is_admitted_has_a_status_and_no_stream() {
    let refusals = [
        (EngineError::QueueFull { waiting: 9 }, 503),
        (EngineError::PromptTooLong { prompt_tokens: 9, context_tokens_max: 8 }, 400),
    ];
    for (error, status) in refusals {
        let server = TestServer::start(move |_| vec![Fail(error.clone())]).await;
        for (path, body, _) in streams() {
            let reply = server.post(path, &body).await;
            assert_eq!(
                (reply.status, reply.headers["content-type"].as_str()),
                (status, "application/json"),
                "{path}"
            );
        }
    }
    // What is known before the engine is asked, too.
    let server = TestServer::start(|_| vec![Admit(0), End]).await;
    for (path, mut body, _) in streams() {
        let long = "x".repeat(CONTEXT as usize);
        match path {
            "/v1/completions" => body["prompt"] = json!(long),
            "/v1/responses" => body["input"] = json!(long),
            _ => body["messages"][0]["content"] = json!(long),
        }
        let reply = server.post(path, &body).await;
        assert_eq!(reply.status, 400, "{path}");
        assert!(reply.body.contains("prompt is too long: "), "{}", reply.body);
    }
}

#[tokio::test]
async fn a_slow_reader_loses_its_own_request_alone() {
    let server = TestServer::start(|request| match request.sampling.seed {
        1 => [vec![Admit(0)], vec![Text("0123456789abcdef"); 40_000], vec![End]].concat(),
        _ => vec![Admit(0), Text("quick"), End],
    })
    .await;
    let stalled =
        server.open(&post(PATH, &json!({"prompt": "a", "stream": true, "seed": 1}).to_string())).await;
    server.wait_for_requests(1).await;
    let reply = server.post(PATH, &json!({"prompt": "a", "seed": 2})).await;
    assert_eq!(reply.json()["choices"][0]["text"], "quick");
    drop(stalled);
    server.wait_for_cancelled(1).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_is_let_go_and_one_that_waits_is_not() {
    let config = ServerConfig { send_timeout: Duration::from_millis(60), ..quick_config() };
    let server =
        TestServer::with_config(config, ZeroTemperature::Reject, |request| match request.sampling.seed {
            1 => [vec![Admit(0)], vec![Text("0123456789abcdef"); 40_000], vec![End]].concat(),
            _ => vec![Admit(0), Text("a"), Pause(200), Text("b"), End],
        })
        .await;
    let mut stalled =
        server.open(&post(PATH, &json!({"prompt": "a", "stream": true, "seed": 1}).to_string())).await;
    server.wait_for_cancelled(1).await;
    let mut rest = Vec::new();
    let ended = timeout(PATIENCE, stalled.read_to_end(&mut rest)).await.unwrap();
    assert!(ended.is_err() || !rest.ends_with(b"0\r\n\r\n"), "the stream is broken off");
    let reply = server.post(PATH, &json!({"prompt": "a", "stream": true, "seed": 2})).await;
    assert!(reply.body.ends_with("data: [DONE]\n\n"));
}

#[tokio::test]
async fn a_full_queue_is_refused_with_a_time_to_retry() {
    let server = TestServer::start(|_| vec![Hang]).await;
    let body = json!({"prompt": "a", "n": WAITING_MAX / 2}).to_string();
    let waiting = [server.open(&post(PATH, &body)).await, server.open(&post(PATH, &body)).await];
    server.wait_for_requests(WAITING_MAX as usize).await;
    let refused = server.post(PATH, &json!({"prompt": "a"})).await;
    refused.assert_error(503, "queue_full", None);
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(server.get("/health").await.json()["engine"]["requests_waiting"], WAITING_MAX);
    drop(waiting);
    server.wait_for_cancelled(WAITING_MAX as usize).await;
    eventually(|| server.service.engine.stats().requests_waiting == 0).await;
}

#[tokio::test]
async fn stopping_finishes_what_runs_and_refuses_the_rest() {
    let mut server = TestServer::start(|_| vec![Admit(0), Text("a"), Pause(200), Text("b"), End]).await;
    assert_eq!(server.get("/health").await.json()["status"], "ok");
    let mut running = server.open(&post(PATH, &json!({"prompt": "a", "stream": true}).to_string())).await;
    read_until(&mut running, "\"a\"").await;
    // A second request on a connection that is open already.
    let health = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut kept = server.open(health).await;
    read_until(&mut kept, "\"ok\"").await;
    server.stop();
    eventually(|| server.service.is_stopping()).await;
    let rest = read_until(&mut running, "[DONE]").await;
    assert!(rest.contains("\"b\""));
    let mut more = Vec::new();
    assert_eq!(kept.read_to_end(&mut more).await.unwrap(), 0);
    assert_eq!(server.ended().await, Ended::InOrder);
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn what_does_not_drain_is_cut_off() {
    let config = ServerConfig { drain_timeout: Duration::from_millis(50), ..quick_config() };
    let mut server =
        TestServer::with_config(config, ZeroTemperature::Reject, |_| vec![Admit(0), Text("a"), Hang]).await;
    let mut running = server.open(&post(PATH, &json!({"prompt": "a", "stream": true}).to_string())).await;
    read_until(&mut running, "\"a\"").await;
    server.stop();
    assert_eq!(server.ended().await, Ended::InOrder);
    let mut rest = String::new();
    running.read_to_string(&mut rest).await.unwrap();
    assert!(!rest.contains("[DONE]"));
}

#[tokio::test]
async fn a_failed_engine_is_unhealthy_and_refuses_at_once() {
    let failure = EngineError::Execution("secret".into());
    let server = TestServer::start(move |_| vec![Admit(0), Fail(failure.clone())]).await;
    let health = server.get("/health").await;
    assert_eq!((health.status, health.json()["status"].as_str()), (200, Some("ok")));
    for _ in 0..2 {
        server.post(PATH, &json!({"prompt": "a"})).await.assert_error(500, "execution_failed", None);
    }
    assert_eq!(server.requests.lock().unwrap().len(), 1);
    let health = server.get("/health").await;
    assert_eq!(health.status, 503);
    assert_eq!(health.json()["status"], "failed");
    assert_eq!(health.json()["engine"]["failed"], true);
}
