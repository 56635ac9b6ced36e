//! `/v1/models` for clients of both houses, and the names that requests may give.

use serde_json::{Value, json};

use super::*;

#[tokio::test]
async fn any_model_is_the_one_that_is_served() {
    let server = TestServer::start(|_| vec![Admit(0), Text("a"), End]).await;
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let paths = [
        ("/v1/chat/completions", json!({"messages": messages})),
        ("/v1/completions", json!({"prompt": "Hi"})),
        ("/v1/responses", json!({"input": "Hi"})),
        ("/v1/messages", json!({"messages": messages, "max_tokens": 9})),
    ];
    for (path, mut body) in paths {
        for model in [json!("tests/tiny"), json!("gpt-99"), json!(""), Value::Null] {
            body["model"] = model.clone();
            let reply = server.post(path, &body).await;
            assert_eq!((reply.status, &reply.json()["model"]), (200, &json!("tests/tiny")), "{path} {model}");
        }
    }
    for path in ["/tokenize", "/v1/messages/count_tokens"] {
        let body = json!({"model": "gpt-99", "messages": messages, "prompt": "Hi"});
        assert_eq!(server.post(path, &body).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn models_are_found_by_their_id_or_its_last_part() {
    let server = TestServer::start(|_| vec![Admit(0), End]).await;
    let list = server.get("/v1/models").await.json();
    let card = json!({"id": "tests/tiny", "object": "model", "created": 1, "owned_by": "flare", "max_model_len": CONTEXT});
    assert_eq!(list, json!({"object": "list", "data": [card]}));
    for id in ["tests/tiny", "tiny"] {
        assert_eq!(server.get(&format!("/v1/models/{id}")).await.json(), card);
    }
    server.get("/v1/models/other").await.assert_error(404, "model_not_found", Some("model"));
}

#[tokio::test]
async fn clients_of_anthropics_api_get_its_shape() {
    let server = TestServer::start(|_| vec![Admit(0), End]).await;
    let get = async |path: &str| {
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: x\r\nanthropic-version: 2023-06-01\r\nconnection: close\r\n\r\n"
        );
        server.send(request.as_bytes()).await
    };
    let card = json!({"type": "model", "id": "tests/tiny", "display_name": "tests/tiny", "lifecycle": "active",
        "created_at": "1970-01-01T00:00:01Z", "max_input_tokens": CONTEXT});
    assert_eq!(
        get("/v1/models?limit=1000").await.json(),
        json!({"data": [card], "has_more": false, "first_id": "tests/tiny", "last_id": "tests/tiny"})
    );
    assert_eq!(get("/v1/models/tests/tiny").await.json(), card);
    get("/v1/models/other").await.assert_anthropic_error(404, "not_found_error");
}
