//! `/v1/chat/completions`: shapes, bytes and what reaches the engine.

use serde_json::{Value, json};

use super::*;

const PATH: &str = "/v1/chat/completions";

fn hello(extra: Value) -> Value {
    let mut body = json!({"model": "tests/tiny", "messages": [{"role": "user", "content": "Hi"}]});
    for (key, value) in extra.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

#[tokio::test]
async fn a_stream_has_these_bytes() {
    let server = TestServer::start(|_| vec![Admit(3), Token(256), Text("y"), Text("é"), End]).await;
    let reply =
        server.post(PATH, &hello(json!({"stream": true, "stream_options": {"include_usage": true}}))).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.headers["content-type"], "text/event-stream; charset=utf-8");
    assert!(reply.headers["x-request-id"].starts_with("req_"));
    let chunk = |choices: &str, usage: &str| {
        format!(
            "data: {{\"id\":\"ID\",\"object\":\"chat.completion.chunk\",\"created\":0,\"model\":\"tests/tiny\",\
             \"system_fingerprint\":\"fp_0123456789\",\"choices\":{choices},\"usage\":{usage}}}\n\n"
        )
    };
    let delta = |delta: &str, finish: &str| {
        let choice =
            format!("[{{\"index\":0,\"delta\":{delta},\"logprobs\":null,\"finish_reason\":{finish}}}]");
        chunk(&choice, "null")
    };
    let usage = "{\"prompt_tokens\":21,\"completion_tokens\":5,\"total_tokens\":26,\
        \"prompt_tokens_details\":{\"cached_tokens\":3,\"audio_tokens\":0},\
        \"completion_tokens_details\":{\"reasoning_tokens\":0,\"audio_tokens\":0,\
        \"accepted_prediction_tokens\":0,\"rejected_prediction_tokens\":0}}";
    let expected = [
        delta("{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null}", "null"),
        delta("{\"content\":\"he\"}", "null"),
        delta("{\"content\":\"y\"}", "null"),
        delta("{\"content\":\"é\"}", "null"),
        delta("{}", "\"stop\""),
        chunk("[]", usage),
        "data: [DONE]\n\n".to_owned(),
    ];
    assert_eq!(reply.golden(), expected.concat());
}

#[tokio::test]
async fn usage_is_reported_only_when_asked_for() {
    let server = TestServer::start(|_| vec![Admit(0), Text("a"), Length]).await;
    for options in [json!({"stream": true}), json!({"stream": true, "stream_options": {}})] {
        let reply = server.post(PATH, &hello(options)).await;
        assert!(!reply.body.contains("usage"));
        assert!(reply.body.ends_with("\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n"));
    }
}

#[tokio::test]
async fn a_whole_answer_has_every_required_key() {
    let server = TestServer::start(|_| vec![Admit(0), Text("Hello"), End]).await;
    let reply = server.post(PATH, &hello(json!({"n": 2, "seed": -1}))).await;
    assert_eq!(reply.status, 200);
    let body = reply.json();
    assert!(body["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!(body["object"], "chat.completion");
    assert!(body["created"].is_u64());
    assert_eq!(body["choices"].as_array().unwrap().len(), 2);
    assert_eq!(
        body["choices"][1],
        json!({"index": 1, "message": {"role": "assistant", "content": "Hello", "refusal": null},
               "logprobs": null, "finish_reason": "stop"})
    );
    let prompt = server.last_request().prompt.len();
    assert_eq!(body["usage"]["prompt_tokens"], prompt);
    assert_eq!(body["usage"]["completion_tokens"], 12);
    // Choices of one request draw from different streams.
    let mut seeds: Vec<u64> =
        server.requests.lock().unwrap().iter().map(|request| request.sampling.seed).collect();
    seeds.sort_unstable();
    assert_eq!(seeds, [0, u64::MAX]);
}

#[tokio::test]
async fn choices_interleave_under_their_own_index_and_finish_once_each() {
    let server = TestServer::start(|request| match request.sampling.seed {
        7 => vec![Admit(0), Text("ab"), Pause(40), Text("c"), End],
        _ => vec![Pause(10), Admit(0), Text("xyz"), Length],
    })
    .await;
    let reply = server.post(PATH, &hello(json!({"n": 2, "seed": 7, "stream": true}))).await;
    let mut texts = [String::new(), String::new()];
    let mut finishes = [Vec::new(), Vec::new()];
    for event in reply.events() {
        let choice = &event["choices"][0];
        let index = choice["index"].as_u64().unwrap() as usize;
        texts[index].push_str(choice["delta"]["content"].as_str().unwrap_or(""));
        finishes[index].extend(choice["finish_reason"].as_str().map(str::to_owned));
    }
    assert_eq!(texts, ["abc", "xyz"]);
    assert_eq!(finishes, [["stop"], ["length"]]);
}

#[tokio::test]
async fn the_template_gets_the_conversation_in_its_own_terms() {
    let server = TestServer::start(|_| vec![Admit(0), End]).await;
    let call = |arguments: &str| json!({"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}});
    let body = json!({
        "messages": [
            {"role": "developer", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief"}]},
            {"role": "user", "content": "Hi"},
            {"role": "user", "content": "again"},
            {"role": "assistant", "content": null, "tool_calls": [call("{\"x\": [1]}"), call("")]},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "done"},
                {"type": "image_url", "image_url": {"url": "data:"}}]},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"$schema": "<x>", "maximum": 9007199254740991_i64}}}],
        "tool_choice": "auto", "metadata": {"a": 1}, "user": "me", "store": false, "unknown": [1],
        "temperature": null, "stop": null, "max_tokens": null, "logit_bias": null, "stream_options": null,
    });
    assert_eq!(server.post(PATH, &body).await.status, 200);
    assert_eq!(
        server.last_prompt(),
        "[tools [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"$schema\": \"<x>\", \
         \"maximum\": 9007199254740991}}}]]<|im_start|>system\nBe\nbrief<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n\
         <|im_start|>user\nagain<|im_end|>\n<|im_start|>assistant\n[call {\"x\": [1]}][call {}]<|im_end|>\n\
         <|im_start|>tool\ndone\n[An image was here, which this model cannot see.]<|im_end|>\n<|im_start|>assistant\n"
    );
    let mut without = body.clone();
    without["tool_choice"] = json!("none");
    server.post(PATH, &without).await;
    assert!(server.last_prompt().starts_with("<|im_start|>system"));
}

#[tokio::test]
async fn a_final_message_is_continued_or_followed() {
    let server = TestServer::start(|_| vec![Admit(0), End]).await;
    let messages = json!([{"role": "user", "content": "Go"},
        {"role": "assistant", "content": [{"type": "text", "text": "One, "}]}]);
    let body = json!({"messages": messages, "continue_final_message": true, "add_generation_prompt": false});
    assert_eq!(server.post(PATH, &body).await.status, 200);
    assert!(server.last_prompt().ends_with("<|im_start|>assistant\nOne, "));
    let body = json!({"messages": messages, "add_generation_prompt": false});
    assert_eq!(server.post(PATH, &body).await.status, 200);
    assert!(server.last_prompt().ends_with("One, <|im_end|>\n"));
}

#[tokio::test]
async fn the_ends_of_messages_reach_the_engine_in_tokens() {
    let server = TestServer::start(|_| vec![Admit(0), End]).await;
    let messages = json!([
        {"role": "system", "content": "Bé"},
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": "One, "},
    ]);
    let ends = |request: &GenerationRequest| -> Vec<u32> {
        let turns = request.prompt.windows(2).enumerate();
        let ends = turns.filter(|(_, pair)| *pair == [IM_END, TokenId(b'\n'.into())]);
        ends.map(|(index, _)| index as u32 + 2).collect()
    };
    server.post(PATH, &json!({"messages": messages})).await;
    let whole = server.last_request();
    assert_eq!((whole.endpoints.len(), whole.endpoints.to_vec()), (3, ends(&whole)));

    server.post(PATH, &json!({"messages": messages, "continue_final_message": true})).await;
    let continued = server.last_request();
    assert_eq!(continued.endpoints[..], whole.endpoints[..2]);

    server.post(PATH, &json!({"messages": messages, "tools": [{}], "add_generation_prompt": false})).await;
    let with_tools = server.last_request();
    let preamble = with_tools.prompt.iter().position(|token| token.0 == 259).unwrap() as u32;
    // The last message ends where the prompt does, which is no endpoint.
    assert_eq!(with_tools.endpoints.to_vec(), [&[preamble], &ends(&with_tools)[..2]].concat());

    server.post("/v1/completions", &json!({"prompt": "a<|im_end|>\nb"})).await;
    assert_eq!(server.last_request().endpoints.len(), 0);
}

#[tokio::test]
async fn sampling_fields_reach_the_engine_and_defaults_are_the_cores() {
    let server = TestServer::start(|_| vec![Admit(0), End]).await;
    server.post(PATH, &hello(json!({"temperature": 1.5, "top_k": -1, "top_p": 0.5, "min_p": 0.1,
        "repetition_penalty": 1.25, "presence_penalty": -2, "frequency_penalty": 2, "seed": 18446744073709551615_u64,
        "logit_bias": {"5": -100, "260": 1.5}, "max_tokens": 9, "max_completion_tokens": 7, "ignore_eos": true,
        "logprobs": true, "top_logprobs": 3, "cache_salt": "team a"}))).await;
    let request = server.last_request();
    let sampling = &request.sampling;
    assert_eq!((sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p), (1.5, 0, 0.5, 0.1));
    assert_eq!(
        (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty),
        (1.25, -2.0, 2.0)
    );
    assert_eq!(sampling.seed, u64::MAX);
    assert_eq!(sampling.logit_bias, [(TokenId(5), -100.0), (TokenId(260), 1.5)]);
    assert_eq!((request.output_tokens_max, request.ignore_eos, request.logprobs), (7, true, Some(3)));
    assert_eq!(request.cache_salt.as_deref(), Some("team a"));

    server.post(PATH, &hello(json!({"max_tokens": 4_000_000_000_000_i64}))).await;
    let first = server.last_request();
    assert_eq!((first.sampling.temperature, first.sampling.top_k, first.sampling.top_p), (0.25, 50, 0.9));
    assert_eq!(first.output_tokens_max, CONTEXT - first.prompt.len() as u32);
    assert_eq!((first.logprobs, first.cache_salt), (None, None));
    server.post(PATH, &hello(json!({}))).await;
    assert_ne!(server.last_request().sampling.seed, first.sampling.seed);
}

#[tokio::test]
async fn logprobs_follow_their_text() {
    let server = TestServer::start(|_| {
        let odd: &[(u32, f32)] = &[(0xC3, -0.5), (65, f32::NEG_INFINITY)];
        vec![
            Admit(0),
            Scored(0xC3, -0.5, odd),
            Scored(0xA9, -0.25, &[]),
            Scored(u32::from(b'!'), -1.0, &[]),
            End,
        ]
    })
    .await;
    let asked = json!({"logprobs": true, "top_logprobs": 2, "stream": true});
    let reply = server.post(PATH, &hello(asked.clone())).await;
    let events = reply.events();
    // Both tokens of the é come with it.
    assert_eq!(events[1]["choices"][0]["delta"]["content"], "é");
    assert_eq!(
        events[1]["choices"][0]["logprobs"],
        json!({"content": [
            {"token": "\u{FFFD}", "logprob": -0.5, "bytes": [0xC3], "top_logprobs": [
                {"token": "\u{FFFD}", "logprob": -0.5, "bytes": [0xC3]},
                {"token": "A", "logprob": -9999.0, "bytes": [65]}]},
            {"token": "\u{FFFD}", "logprob": -0.25, "bytes": [0xA9], "top_logprobs": []},
        ], "refusal": null})
    );
    let mut whole = asked;
    whole["stream"] = json!(false);
    let body = server.post(PATH, &hello(whole)).await.json();
    let content = body["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(content.len(), 3, "the end token is not reported");
}

#[tokio::test]
async fn a_stop_string_is_never_shown_and_cancels_the_rest() {
    let server = TestServer::start(|_| vec![Admit(0), Text("one STO, two STOP three"), Hang]).await;
    for stop in [json!("STOP"), json!(["unseen", "STOP"])] {
        let reply = server.post(PATH, &hello(json!({"stop": stop, "stream": true}))).await;
        let text: String = reply
            .events()
            .iter()
            .filter_map(|event| event["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
            .collect();
        assert_eq!(text, "one STO, two ");
        assert!(reply.body.contains("\"finish_reason\":\"stop\""));
    }
    server.wait_for_cancelled(2).await;
    let held = TestServer::start(|_| vec![Admit(0), Text("almost STO"), Length]).await;
    let body = held.post(PATH, &hello(json!({"stop": "STOP"}))).await.json();
    assert_eq!(body["choices"][0]["message"]["content"], "almost STO");
    assert_eq!(body["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn broken_utf8_is_replaced_only_at_the_end() {
    let server = TestServer::start(|_| vec![Admit(0), Text("a"), Token(0xF0), Token(0x9F), Length]).await;
    let body = server.post(PATH, &hello(json!({}))).await.json();
    assert_eq!(body["choices"][0]["message"]["content"], "a\u{FFFD}");
}
