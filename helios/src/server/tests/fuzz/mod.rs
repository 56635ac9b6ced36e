//! Random bodies at every endpoint that takes one: each is answered in its endpoint's own shape, and none with a 5xx.
//!
//! `FLARE_FUZZ_BODIES` is how many bodies each endpoint gets; from [`FLAT_FROM`] on, memory must have stopped growing
//! too. `FLARE_FUZZ_SEED` makes others of them, and `FLARE_FUZZ_ADDRESS` sends the bodies to a server elsewhere.

mod client;
mod contract;
mod mutate;

use std::collections::BTreeMap;
use std::env;
use std::ops::Range;
use std::str::FromStr;

use serde_json::Value;

use self::client::Client;
use self::contract::Contract;
use self::mutate::mutate;
use super::tools::CALLS;
use super::*;
use crate::device::allocations::live_bytes;
use crate::sim::random::{Random, mix};

const BODIES: &str = include_str!("bodies.json");
const BODIES_MAX: u64 = 250;
const CLIENTS: usize = 4;
/// How many bodies an endpoint gets before memory is judged.
const FLAT_FROM: u64 = 100_000;
/// Words that a worker's tokenizer remembers at most, and how many of them a body brings.
const WORDS_CACHED_MAX: usize = 10_000;
const WORDS_A_BODY: usize = 500;
/// What the process may grow by over the last three quarters of a run. A leak of a hundred bytes a request would be
/// five times as much at seven endpoints. Most of it is the memory of the constraints that happen to be kept.
const GROWTH_BYTES_MAX: usize = 10 << 20;

#[test]
fn random_bodies_are_answered_and_never_with_a_fault() {
    // Bodies are read on as many threads as the binary has for it: each thread has caches of its own.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(ServerConfig::default().preparations_max)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(send_random_bodies());
}

async fn send_random_bodies() {
    let bodies_max = setting("FLARE_FUZZ_BODIES").unwrap_or(BODIES_MAX);
    let seed = setting("FLARE_FUZZ_SEED").unwrap_or(1);
    let config = ServerConfig { stored_bytes_max: 4 << 20, ..quick_config() };
    let server = TestServer::serving(config, ZeroTemperature::Reject, PARSERS, script).await;
    let address = setting("FLARE_FUZZ_ADDRESS").unwrap_or(server.address);
    let bodies: BTreeMap<String, Vec<Value>> = serde_json::from_str(BODIES).unwrap();
    let contract = Arc::new(Contract::of(bodies.keys()));
    fill_caches(address).await;
    let mut live = Vec::new();
    for quarter in 0..4 {
        for (path, valid) in &bodies {
            let fuzz =
                Fuzz { address, contract: contract.clone(), path: path.clone(), valid: valid.clone(), seed };
            let statuses = fuzz.run(quarter * bodies_max / 4..(quarter + 1) * bodies_max / 4).await;
            eprintln!("{path}: {statuses:?}");
            // The scripted engine keeps every request.
            server.requests.lock().unwrap().clear();
        }
        live.push(live_bytes());
    }
    let growth = live[3].saturating_sub(live[0]);
    eprintln!("FLARE_FUZZ_SEED={seed}, bytes held after each quarter: {live:?}");
    assert!(
        bodies_max < FLAT_FROM || growth <= GROWTH_BYTES_MAX,
        "FLARE_FUZZ_SEED={seed}: grew by {growth} bytes"
    );
}

/// What is filled once and then stays is filled before memory is judged: each worker's memory of words, and the debug
/// information behind a backtrace, which llguidance asks for when an assertion of its own fails.
async fn fill_caches(address: SocketAddr) {
    std::hint::black_box(std::backtrace::Backtrace::force_capture().to_string());
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        clients.spawn(async move {
            let mut connection = Client::connect(address).await;
            for first in (0..WORDS_CACHED_MAX).step_by(WORDS_A_BODY) {
                let words = first..first + WORDS_A_BODY;
                let text: String = words.map(|word| format!(" w{client}x{word}")).collect();
                let body = serde_json::json!({"prompt": text}).to_string();
                assert_eq!(connection.post("/tokenize", body.as_bytes()).await.status, 200);
            }
        });
    }
    clients.join_all().await;
}

/// The bodies of one endpoint.
#[derive(Clone)]
struct Fuzz {
    address: SocketAddr,
    contract: Arc<Contract>,
    path: String,
    valid: Vec<Value>,
    seed: u64,
}

impl Fuzz {
    /// Sends the bodies of these indexes from several clients and counts the answers' statuses.
    async fn run(self, indexes: Range<u64>) -> BTreeMap<u16, u64> {
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let (fuzz, mut indexes) = (self.clone(), indexes.clone().skip(client).step_by(CLIENTS));
            clients.spawn(async move {
                let mut client = Client::connect(fuzz.address).await;
                let mut statuses = Vec::new();
                for index in &mut indexes {
                    statuses.push(fuzz.send(&mut client, index).await);
                }
                statuses
            });
        }
        let mut counts = BTreeMap::new();
        for status in clients.join_all().await.into_iter().flatten() {
            *counts.entry(status).or_default() += 1;
        }
        counts
    }

    async fn send(&self, client: &mut Client, index: u64) -> u16 {
        let Self { path, seed, .. } = self;
        let body = mutate(&mut Random::new(seed ^ mix(index)), &self.valid);
        let told = format!("FLARE_FUZZ_SEED={seed} {path} {index}: {}", String::from_utf8_lossy(&body));
        let answered = timeout(PATIENCE, client.post(path, &body)).await;
        let reply = answered.unwrap_or_else(|_| panic!("hangs: {told}"));
        assert!(reply.status < 500, "{}: {told}\n{}", reply.status, reply.body);
        assert!(reply.headers["x-request-id"].starts_with("req_"), "{told}");
        self.contract.check(path, &reply, &told);
        if reply.headers["content-type"].starts_with("text/event-stream") {
            check_stream(path, &reply, &told);
        }
        reply.status
    }
}

/// A stream ends as its API says, and no fault hides in it behind a status that was sent already.
fn check_stream(path: &str, reply: &Reply, told: &str) {
    let events = reply.events();
    let last = events.last().unwrap_or_else(|| panic!("no event: {told}"));
    let kind = last["type"].as_str().unwrap_or("");
    let ends = match path {
        "/v1/responses" => ["response.completed", "response.incomplete", "response.failed"].contains(&kind),
        "/v1/messages" => ["message_stop", "error"].contains(&kind),
        _ => reply.body.ends_with("data: [DONE]\n\n") || last["error"].is_object(),
    };
    assert!(ends, "{told}\n{}", reply.body);
    for fault in [&last["error"], &last["response"]["error"]] {
        let names = [&fault["type"], &fault["code"]].map(|name| name.as_str().unwrap_or(""));
        assert!(
            !names.iter().any(|name| ["server_error", "api_error"].contains(name)),
            "{told}\n{}",
            reply.body
        );
    }
}

fn setting<T: FromStr>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is of another form")))
}

/// What the model writes depends on the prompt: text, calls, both cut off, or what cannot be decoded.
fn script(request: &GenerationRequest) -> Vec<Step> {
    let sum = request.prompt.iter().map(|token| u64::from(token.0)).sum::<u64>();
    let ending = if request.output_tokens_max < 8 { Length } else { End };
    match mix(sum) % 4 {
        0 => vec![Admit(0), Text("Well, hello."), ending],
        1 => vec![Admit(1), Text(CALLS), ending],
        2 => vec![Admit(0), Text("<think>Hm"), Token(0xE2), Length],
        _ => vec![Admit(0), Token(0xFF), Text("<tool_call>\n{\"name\": \"f\", "), Length],
    }
}
