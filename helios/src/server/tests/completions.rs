//! `/v1/completions`: prompts, echo, logprobs.

use serde_json::json;

use super::*;

const PATH: &str = "/v1/completions";

#[tokio::test]
async fn a_stream_has_these_bytes() {
    let server = TestServer::start(|_| vec![Admit(0), Text("ab"), Length]).await;
    let reply =
        server.post(PATH, &json!({"prompt": "Hi", "stream": true, "echo": true, "max_tokens": 2})).await;
    let chunk = |text: &str, finish: &str| {
        format!(
            "data: {{\"id\":\"ID\",\"object\":\"text_completion\",\"created\":0,\"model\":\"tests/tiny\",\
             \"system_fingerprint\":\"fp_0123456789\",\"choices\":[{{\"text\":\"{text}\",\"index\":0,\
             \"logprobs\":null,\"finish_reason\":{finish}}}]}}\n\n"
        )
    };
    let expected = chunk("Hi", "null")
        + &chunk("a", "null")
        + &chunk("b", "null")
        + &chunk("", "\"length\"")
        + "data: [DONE]\n\n";
    assert_eq!(reply.golden(), expected);
    assert_eq!(server.last_request().output_tokens_max, 2);
}

#[tokio::test]
async fn every_kind_of_prompt_is_taken() {
    let server = TestServer::start(|_| vec![Admit(1), Text("!"), End]).await;
    let texts = async |prompt: serde_json::Value, n: u32| {
        let body = server.post(PATH, &json!({"prompt": prompt, "n": n, "echo": true})).await.json();
        assert_eq!(body["object"], "text_completion");
        let choices = body["choices"].as_array().unwrap().clone();
        let usage = body["usage"].clone();
        (choices.iter().map(|choice| choice["text"].as_str().unwrap().to_owned()).collect::<Vec<_>>(), usage)
    };
    assert_eq!(texts(json!("ab"), 1).await.0, ["ab!"]);
    assert_eq!(texts(json!([97, 98]), 1).await.0, ["ab!"]);
    assert_eq!(texts(json!([[97], [98, 99]]), 1).await.0, ["a!", "bc!"]);
    let (choices, usage) = texts(json!(["a", "bc"]), 2).await;
    assert_eq!(choices, ["a!", "a!", "bc!", "bc!"]);
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(3), &json!(8)));
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 2);
}

#[tokio::test]
async fn no_output_needs_no_engine() {
    let server = TestServer::start(|_| vec![Hang]).await;
    let body = server.post(PATH, &json!({"prompt": "ab", "max_tokens": 0, "echo": true})).await.json();
    assert_eq!(
        body["choices"],
        json!([{"text": "ab", "index": 0, "logprobs": null, "finish_reason": "length"}])
    );
    assert!(server.requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn logprobs_are_parallel_lists() {
    let server = TestServer::start(|_| {
        vec![Admit(0), Scored(256, -0.5, &[(256, -0.5), (0xC3, -2.0)]), Scored(97, -1.5, &[(98, -0.25)]), End]
    })
    .await;
    let body = server.post(PATH, &json!({"prompt": "x", "logprobs": 2})).await.json();
    assert_eq!(
        body["choices"][0]["logprobs"],
        json!({
            "tokens": ["he", "a"],
            "token_logprobs": [-0.5, -1.5],
            "top_logprobs": [{"he": -0.5, "bytes:\\xc3": -2.0}, {"a": -1.5, "b": -0.25}],
            "text_offset": [0, 2],
        })
    );
}

#[tokio::test]
async fn tokens_of_a_stop_string_are_not_reported() {
    let server = TestServer::start(|_| {
        vec![Admit(0), Scored(97, -0.5, &[]), Scored(98, -0.5, &[]), Scored(99, -0.5, &[]), Hang]
    })
    .await;
    let body = server.post(PATH, &json!({"prompt": "x", "logprobs": 0, "stop": "bc"})).await.json();
    assert_eq!(body["choices"][0]["text"], "a");
    assert_eq!(body["choices"][0]["logprobs"]["tokens"], json!(["a"]));
    assert_eq!(body["usage"]["completion_tokens"], 3);
}
