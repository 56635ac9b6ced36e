//! Bodies that are too large, too slow or too many.

use serde_json::json;

use super::super::conversation::{MESSAGES_MAX, TOOLS_MAX};
use super::*;

const PATH: &str = "/v1/completions";

fn head(length: usize) -> Vec<u8> {
    format!("POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n")
        .into_bytes()
}

#[tokio::test]
async fn a_hundred_megabytes_are_refused_at_once_and_the_client_hears_it() {
    let server = TestServer::start(|_| vec![Admit(0), End]).await;
    // Before any of the body is sent.
    let mut stream = server.open(&head(100 << 20)).await;
    let early = read_until(&mut stream, "request_too_large").await;
    assert!(early.starts_with("HTTP/1.1 413"));
    // A client that sends all of it before it listens.
    let mut stream = server.open(&head(100 << 20)).await;
    let chunk = vec![b' '; 1 << 20];
    for _ in 0..100 {
        stream.write_all(&chunk).await.unwrap();
    }
    let mut reply = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut reply)).await.unwrap().unwrap();
    Reply::parse(&reply).assert_error(413, "request_too_large", None);
}

#[tokio::test]
async fn a_chunked_body_is_counted_as_it_comes() {
    let config = ServerConfig { body_bytes_max: 1 << 16, ..quick_config() };
    let server = TestServer::with_config(config, ZeroTemperature::Reject, |_| vec![Admit(0), End]).await;
    let mut request = format!(
        "POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    .into_bytes();
    for _ in 0..9 {
        request.extend_from_slice(b"2000\r\n");
        request.extend_from_slice(&[b' '; 0x2000]);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"0\r\n\r\n");
    server.send(&request).await.assert_error(413, "request_too_large", None);
}

#[tokio::test]
async fn a_body_that_dawdles_is_timed_out() {
    let config = ServerConfig {
        body_idle_timeout: Duration::from_millis(60),
        body_timeout: Duration::from_millis(200),
        ..quick_config()
    };
    let server = TestServer::with_config(config, ZeroTemperature::Reject, |_| vec![Admit(0), End]).await;
    server.send(&[head(50), b"{".to_vec()].concat()).await.assert_error(408, "request_timeout", None);
    // One byte at a time keeps it alive only until the whole body is due.
    let mut stream = server.open(&head(500)).await;
    let (mut reader, mut writer) = stream.split();
    let drip = async {
        while writer.write_all(b" ").await.is_ok() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    let mut reply = vec![0; 4096];
    let read = tokio::select! {
        read = reader.read(&mut reply) => read.unwrap(),
        () = drip => panic!("the answer comes first"),
    };
    assert!(String::from_utf8_lossy(&reply[..read]).starts_with("HTTP/1.1 408"));
}

#[tokio::test]
async fn headers_that_dawdle_lose_their_connection() {
    let config = ServerConfig { header_timeout: Duration::from_millis(80), ..quick_config() };
    let server = TestServer::with_config(config, ZeroTemperature::Reject, |_| vec![Admit(0), End]).await;
    let mut stream = server.open(b"POST /v1/comple").await;
    let mut rest = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut rest)).await.unwrap().unwrap();
}

#[tokio::test]
async fn bodies_together_have_a_share_of_memory() {
    let config = ServerConfig { buffered_bytes_max: 64 << 10, ..quick_config() };
    let server = TestServer::with_config(config, ZeroTemperature::Reject, |_| vec![Admit(0), End]).await;
    let body = json!({"prompt": "a", "x": " ".repeat(40 << 10)}).to_string();
    let holding = server.open(&[head(body.len() + 1), body.clone().into_bytes()].concat()).await;
    eventually(|| server.service.buffered_kibibytes.available_permits() < 30).await;
    let refused = server.send(&post(PATH, &body)).await;
    refused.assert_error(503, "server_busy", None);
    drop(holding);
    eventually(|| server.service.buffered_kibibytes.available_permits() == 64).await;
    assert_eq!(server.send(&post(PATH, &body)).await.status, 200);
}

#[tokio::test]
async fn connections_beyond_the_bound_wait_their_turn() {
    let config = ServerConfig { connections_max: 1, ..quick_config() };
    let server = TestServer::with_config(config, ZeroTemperature::Reject, |_| vec![Admit(0), End]).await;
    let idle = server.open(b"").await;
    sleep(Duration::from_millis(30)).await;
    let mut waiting = server.open(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let mut byte = [0];
    assert!(timeout(Duration::from_millis(80), waiting.read(&mut byte)).await.is_err());
    drop(idle);
    assert!(read_until(&mut waiting, "\"ok\"").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn messages_and_tools_have_a_largest_number() {
    let server = TestServer::start(|_| vec![Admit(0), End]).await;
    let message = json!({"role": "user", "content": ""});
    let messages = vec![message.clone(); MESSAGES_MAX + 1];
    let tools = vec![json!({}); TOOLS_MAX + 1];
    let named = [
        ("/v1/chat/completions", "messages", json!({"messages": messages})),
        ("/v1/chat/completions", "tools", json!({"messages": [message], "tools": tools})),
        ("/v1/responses", "input", json!({"input": messages})),
        ("/v1/responses", "tools", json!({"input": "Hi", "tools": tools})),
    ];
    for (path, field, body) in named {
        let reply = server.post(path, &body).await;
        reply.assert_error(400, "invalid_value", Some(field));
        let bound = if field == "tools" { TOOLS_MAX } else { MESSAGES_MAX };
        assert!(
            reply.body.contains(&format!("{} entries exceed the limit of {bound}", bound + 1)),
            "{}",
            reply.body
        );
    }
    for body in [json!({"messages": messages}), json!({"messages": [message], "tools": tools})] {
        server.post("/v1/messages", &body).await.assert_anthropic_error(400, "invalid_request_error");
    }
}
