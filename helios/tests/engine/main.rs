//! The engine on the host device, with its own state and sampling operators: what they say to one another.
#![cfg(feature = "serve")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod core;
#[path = "../cores/support.rs"]
mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use helios::core::Core;
use helios::ids::{ClientId, TokenId};
use helios::memory::{MemoryOptions, load};
use helios::runtime::engine::{
    Engine, EngineLimits, EngineStats, FinishReason, Generation, GenerationEvent, GenerationRequest,
    SampledToken, SamplingParameters, channel,
};
use helios::runtime::worker::{Worker, WorkerOptions};
use helios::tiers::{DiskOptions, TierOptions};

use crate::core::{CONTEXT_TOKENS, END_TOKEN, SLOTS, VOCABULARY};

/// What the hash says to a prompt; no sampling parameter can change it.
fn expected(request: &GenerationRequest) -> Vec<u32> {
    let mut history: Vec<u32> = request.prompt.iter().map(|token| token.0).collect();
    let prompt = history.len();
    let limit = request.output_tokens_max.min(CONTEXT_TOKENS - prompt as u32) as usize;
    while history.len() < prompt + limit {
        let hash = history.iter().fold(0u64, |hash, &token| (hash * 31 + u64::from(token) + 7) % 1_000_003);
        let token = (hash % u64::from(VOCABULARY)) as u32;
        history.push(token);
        if token == END_TOKEN && !request.ignore_eos {
            break;
        }
    }
    history.split_off(prompt)
}

/// Requests of all lengths, the same in every run.
fn requests(count: u32) -> Vec<GenerationRequest> {
    let request = |index: u32| GenerationRequest {
        client: ClientId(0),
        prompt: (0..1 + index * 37 % 150).map(|place| TokenId((place * index + 3) % VOCABULARY)).collect(),
        endpoints: Arc::default(),
        cache_salt: None,
        sampling: SamplingParameters {
            temperature: 0.7,
            top_k: index % 3,
            top_p: 0.9,
            min_p: 0.1,
            repetition_penalty: 1.1,
            presence_penalty: 0.5,
            frequency_penalty: -0.5,
            logit_bias: vec![(TokenId(index % VOCABULARY), 5.0)],
            seed: u64::from(index),
        },
        output_tokens_max: 1 + index * 53 % 200,
        ignore_eos: index.is_multiple_of(2),
        logprobs: (index % 4 > 1).then_some(index % 3),
        constraint: None,
    };
    (0..count).map(request).collect()
}

async fn read(mut generation: Generation) -> (Vec<SampledToken>, FinishReason) {
    let mut tokens = Vec::new();
    loop {
        match generation.events.recv().await.expect("a last event") {
            GenerationEvent::Admitted { .. } => {}
            GenerationEvent::Token(token) => tokens.push(token),
            GenerationEvent::Finished(reason) => return (tokens, reason),
            GenerationEvent::Failed(error) => panic!("{error}"),
        }
    }
}

fn check(request: &GenerationRequest, tokens: &[SampledToken], reason: FinishReason) {
    let ids: Vec<u32> = tokens.iter().map(|token| token.token.0).collect();
    assert_eq!(ids, expected(request));
    let is_end = ids.last() == Some(&END_TOKEN) && !request.ignore_eos;
    assert_eq!(reason, if is_end { FinishReason::EndToken } else { FinishReason::Length });
    for token in tokens {
        assert_eq!(token.logprobs.is_some(), request.logprobs.is_some());
        let Some(logprobs) = &token.logprobs else { continue };
        assert!(logprobs.sampled.abs() < 1e-6, "the one token that is singled out");
        assert_eq!(logprobs.alternatives.len(), request.logprobs.unwrap() as usize);
        assert!(logprobs.alternatives.first().is_none_or(|best| best.0 == token.token));
    }
}

async fn idle(engine: &Engine, pages: u32) -> EngineStats {
    until(engine, |stats| {
        let pages_idle = stats.pages_free + stats.pages_cached;
        (pages_idle, stats.slots_free, stats.requests_waiting) == (pages, SLOTS, 0)
    })
    .await
}

async fn until(engine: &Engine, is_reached: impl Fn(&EngineStats) -> bool) -> EngineStats {
    for _ in 0..5000 {
        let stats = engine.stats();
        if is_reached(&stats) {
            return stats;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("it does not come: {:?}", engine.stats());
}

/// Serves `requests` on `pages` pages; every third one's reader leaves early.
async fn serve(pages: u32, snapshots: u32, requests: Vec<GenerationRequest>) -> EngineStats {
    let folder = tempfile::tempdir().unwrap();
    core::core().write(folder.path());
    serve_with(folder.path(), pages, snapshots, TierOptions::default(), requests).await
}

async fn serve_with(
    core: &Path,
    pages: u32,
    snapshots: u32,
    tiers: TierOptions,
    requests: Vec<GenerationRequest>,
) -> EngineStats {
    let has_files = |disk: &DiskOptions| std::fs::read_dir(&disk.folder).unwrap().next().is_some();
    let expects_listing = tiers.disk.as_ref().is_some_and(has_files);
    let loaded =
        load(Core::open(core).unwrap(), &MemoryOptions { limit_bytes: Some(64 << 20) }, &mut |_| ()).unwrap();
    assert!(pages <= loaded.memory.backing().pages && snapshots <= loaded.memory.snapshot_rows);
    let (engine, receiver) = channel(EngineLimits::default());
    let options = WorkerOptions { pages, snapshots, tiers, core: loaded.digest };
    let worker = Worker::start(&loaded.contract, options, loaded.executor, receiver).unwrap();
    if expects_listing {
        until(&engine, |stats| stats.tiers.disk.checkpoints > 0).await;
    }
    let mut tasks = Vec::new();
    for (index, request) in requests.into_iter().enumerate() {
        let mut generation = engine.submit(request.clone()).await.unwrap();
        tasks.push(tokio::spawn(async move {
            if index % 3 == 2 {
                for _ in 0..index {
                    generation.events.recv().await;
                }
                return;
            }
            let (tokens, reason) = read(generation).await;
            check(&request, &tokens, reason);
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let stats = idle(&engine, pages).await;
    engine.shutdown(10_000).await;
    worker.join();
    stats
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_the_histories_own_whatever_runs_beside_them() {
    assert_eq!(serve(8, 0, requests(40)).await.preemptions, 0);
}

/// Requests that outgrow five pages together.
fn long_requests() -> Vec<GenerationRequest> {
    let mut requests = requests(20);
    for request in &mut requests {
        request.output_tokens_max = 180;
        request.ignore_eos = true;
    }
    requests
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_they_are_when_pages_run_out() {
    for snapshots in [0, 6] {
        assert!(serve(5, snapshots, long_requests()).await.preemptions > 0);
    }
}

/// Three turns of eight conversations, each an answer appended to, a branch, or a repetition.
fn conversations() -> Vec<GenerationRequest> {
    let mut conversations = requests(8);
    for turn in 1..=3 {
        for index in 0..8 {
            let mut request = conversations[index].clone();
            let mut prompt: Vec<u32> = request.prompt.iter().map(|token| token.0).collect();
            prompt.extend(expected(&request));
            match turn {
                1 => prompt.extend([3, 5, 7]),
                2 => prompt.truncate(request.prompt.len()),
                _ => {}
            }
            prompt.truncate(CONTEXT_TOKENS as usize - 8);
            request.prompt = prompt.into_iter().map(TokenId).collect();
            conversations.push(request);
        }
    }
    conversations
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_they_are_when_histories_start_from_checkpoints() {
    let stats = serve(16, 12, conversations()).await;
    assert!(stats.prompt_tokens_cached > 500, "{stats:?}");
    assert!(stats.evictions_for_pages + stats.evictions_for_snapshots > 0, "{stats:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_they_are_when_checkpoints_come_back_from_memory_and_after_a_restart() {
    let (core, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    core::core().write(core.path());
    let disk = DiskOptions { folder: folder.path().to_owned(), budget_bytes: 64 << 20 };
    for (memory_bytes, is_restart) in [(Some(32 << 20), false), (None, true)] {
        let tiers = TierOptions { memory_bytes, disk: Some(disk.clone()) };
        // Few rows and pages, so that most of what is stored is not on the device when it is wanted again.
        let requests = conversations().into_iter().chain(conversations()).collect();
        let stats = serve_with(core.path(), 8, 3, tiers, requests).await;
        assert!(stats.fetches > 0, "{stats:?}");
        let tier = if is_restart { stats.tiers.disk } else { stats.tiers.memory };
        assert!(tier.hits > 0, "{stats:?}");
    }
}
