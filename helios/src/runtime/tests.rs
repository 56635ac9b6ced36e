//! The model thread end to end on a simulated device: packed bytes in, events out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::clock;
use super::engine::*;
use super::worker::{Worker, WorkerOptions};
use crate::core::proto::CompletionField;
use crate::grammar::{Envelope, GrammarCompiler, GrammarLimits, GrammarSource, Vocabulary};
use crate::ids::{ClientId, Digest, TokenId};
use crate::sim::core::{CONTEXT_TOKENS, SLOTS, VOCABULARY, contract};
use crate::sim::executor::{Fault, SimExecutor, stream};
use crate::sim::model::{END_TOKEN, next_token};
use crate::sim::random::{Random, mix};
use crate::text::testing::byte_level_tokenizer;
use crate::tiers::TierOptions;

/// Every slot can hold a whole context.
const AMPLE_PAGES: u32 = 72;
const SNAPSHOTS: u32 = 12;

fn options(pages: u32) -> WorkerOptions {
    // Every server stores what it can, whatever else its test is about.
    let tiers = TierOptions { memory_bytes: Some(1 << 20), disk: None };
    WorkerOptions { pages, snapshots: SNAPSHOTS, tiers, core: Digest([0; 32]) }
}

struct Server {
    engine: Engine,
    worker: Worker,
    launches: Arc<AtomicU64>,
    early_launches: Arc<AtomicU64>,
}

impl Server {
    fn start(pages: u32, fault: Option<Fault>, step_time: Duration, limits: EngineLimits) -> Self {
        let contract = contract();
        let executor = SimExecutor::new(&contract, pages, SNAPSHOTS, fault, step_time);
        let (launches, early_launches) = (executor.launches(), executor.early_launches());
        let (engine, receiver) = channel(limits);
        let worker = Worker::start(&contract, options(pages), Box::new(executor), receiver).unwrap();
        Self { engine, worker, launches, early_launches }
    }

    fn ample() -> Self {
        Self::start(AMPLE_PAGES, None, Duration::ZERO, EngineLimits::default())
    }

    /// The counters once `ended` requests have ended and the thread has nothing left to do.
    async fn idle_stats(&self, ended: u64) -> EngineStats {
        for _ in 0..2000 {
            let stats = self.engine.stats();
            let counted = stats.requests_finished + stats.requests_cancelled + stats.requests_failed;
            if counted == ended && stats.requests_waiting == 0 && stats.slots_free == SLOTS {
                return stats;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("still busy: {:?}", self.engine.stats());
    }

    async fn close(self) {
        self.engine.shutdown(60_000).await;
        self.worker.join();
    }
}

fn request(prompt: &[u32], output_tokens_max: u32) -> GenerationRequest {
    GenerationRequest {
        client: ClientId(0),
        prompt: prompt.iter().copied().map(TokenId).collect(),
        endpoints: Arc::default(),
        cache_salt: None,
        sampling: SamplingParameters {
            temperature: 0.5,
            top_k: 40,
            top_p: 0.25,
            min_p: 0.125,
            repetition_penalty: 1.5,
            presence_penalty: -0.75,
            frequency_penalty: 0.0625,
            logit_bias: vec![(TokenId(3), 2.0), (TokenId(9), -100.0)],
            seed: u64::MAX - 5,
        },
        output_tokens_max,
        ignore_eos: false,
        logprobs: None,
        constraint: None,
    }
}

fn random_request(random: &mut Random) -> GenerationRequest {
    let length = random.within(1..=40);
    let prompt: Vec<u32> = (0..length).map(|_| random.within(0..=VOCABULARY - 1)).collect();
    let mut request = request(&prompt, random.within(1..=40));
    request.sampling.seed = random.word();
    request.sampling.temperature = random.within(1..=20) as f32 / 10.0;
    request.ignore_eos = random.chance(50);
    request.logprobs = random.chance(30).then(|| random.within(0..=5));
    request
}

/// What the simulated model says to a request that is not preempted.
fn expected(request: &GenerationRequest) -> Vec<TokenId> {
    let sampling = &request.sampling;
    let parameters = [
        sampling.temperature,
        sampling.top_p,
        sampling.min_p,
        sampling.repetition_penalty,
        sampling.presence_penalty,
        sampling.frequency_penalty,
    ];
    let bias = sampling.logit_bias.iter().map(|&(token, value)| (i64::from(token.0), value));
    let seed = stream(sampling.seed, sampling.top_k, parameters.into_iter(), bias);
    let mut history = request.prompt.to_vec();
    let limit = request.output_tokens_max.min(CONTEXT_TOKENS - history.len() as u32);
    for generated in 0..u64::from(limit) {
        let stream = if seed == 0 { 0 } else { mix(seed).wrapping_add(generated) };
        let token = next_token(&history, stream, VOCABULARY);
        history.push(token);
        if token == END_TOKEN && !request.ignore_eos {
            break;
        }
    }
    history.split_off(request.prompt.len())
}

/// Reads a generation to its end, checking the order of its events.
async fn read(mut generation: Generation) -> (Vec<SampledToken>, Result<FinishReason, EngineError>) {
    let mut is_admitted = false;
    let mut tokens = Vec::new();
    while let Some(event) = generation.events.recv().await {
        match event {
            GenerationEvent::Admitted { .. } => {
                assert!(!is_admitted);
                is_admitted = true;
            }
            GenerationEvent::Token(token) => {
                assert!(is_admitted);
                tokens.push(token);
            }
            GenerationEvent::Finished(reason) => {
                assert_eq!(generation.events.recv().await, None);
                return (tokens, Ok(reason));
            }
            GenerationEvent::Failed(error) => {
                assert_eq!(generation.events.recv().await, None);
                return (tokens, Err(error));
            }
        }
    }
    panic!("the events ended without a last one");
}

fn ids(tokens: &[SampledToken]) -> Vec<TokenId> {
    tokens.iter().map(|token| token.token).collect()
}

fn check_whole(request: &GenerationRequest, tokens: &[SampledToken], reason: FinishReason) {
    assert_eq!(ids(tokens), expected(request));
    let is_end = tokens.last().is_some_and(|token| token.token == END_TOKEN) && !request.ignore_eos;
    assert_eq!(reason, if is_end { FinishReason::EndToken } else { FinishReason::Length });
    for token in tokens {
        let logprobs = request.logprobs.map(|count| TokenLogprobs {
            sampled: -(token.token.0 as f32),
            alternatives: (0..count).map(|index| (TokenId(token.token.0 + index), -(index as f32))).collect(),
        });
        assert_eq!(token.logprobs, logprobs);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_gets_the_same_tokens_whatever_else_runs_and_leaves_nothing_behind() {
    let step_time = Duration::from_micros(200);
    let server = Server::start(AMPLE_PAGES, None, step_time, EngineLimits::default());
    let mut random = Random::new(11);
    let mut tasks = Vec::new();
    for _ in 0..50 {
        let request = random_request(&mut random);
        let patience = random.chance(40).then(|| random.within(0..=20) as usize);
        let drops_guard_alone = random.chance(50);
        let mut generation = server.engine.submit(request.clone()).await.unwrap();
        tasks.push(tokio::spawn(async move {
            let Some(patience) = patience else {
                let (tokens, reason) = read(generation).await;
                check_whole(&request, &tokens, reason.unwrap());
                return true;
            };
            for _ in 0..patience {
                if generation.events.recv().await.is_none() {
                    break;
                }
            }
            if drops_guard_alone {
                drop(generation.guard);
                while generation.events.recv().await.is_some() {}
            }
            false
        }));
    }
    let mut whole = 0;
    for task in tasks {
        whole += u64::from(task.await.unwrap());
    }
    let stats = server.idle_stats(50).await;
    assert_eq!((stats.pages_free + stats.pages_cached, stats.slots_free), (AMPLE_PAGES, SLOTS));
    assert!(stats.requests_finished >= whole && whole > 20);
    assert!(stats.requests_cancelled > 5, "{stats:?}");
    assert_eq!(stats.requests_failed, 0);
    check_histograms(&server, &stats);
    server.close().await;
}

/// What the histograms counted of a server that is idle, beside what the counters say.
fn check_histograms(server: &Server, stats: &EngineStats) {
    let histograms = server.engine.histograms();
    let admitted = histograms.queue_time.read().count;
    assert!(
        admitted >= stats.requests_finished && admitted <= stats.requests_finished + stats.requests_cancelled
    );
    for of_requests in [
        &histograms.request_duration,
        &histograms.prompt_tokens,
        &histograms.cached_tokens,
        &histograms.generated_tokens,
    ] {
        assert_eq!(of_requests.read().count, admitted);
    }
    assert_eq!(histograms.generated_tokens.read().sum, stats.tokens_generated as f64);
    let first_tokens = histograms.time_to_first_token.read().count;
    assert!((stats.requests_finished..=admitted).contains(&first_tokens));
    assert_eq!(first_tokens + histograms.inter_token_time.read().count, stats.tokens_generated);
    let steps = histograms.step_durations.by_operation().map(|(_, durations)| durations.read().count);
    assert_eq!(steps.iter().sum::<u64>(), server.launches.load(Ordering::Relaxed));
    let decode_steps = steps[4];
    assert_eq!(histograms.decode_lanes.read().count, decode_steps);
}

#[tokio::test]
async fn checkpoints_are_stored_while_nobody_asks_for_anything() {
    let server = Server::ample();
    let (_, reason) = read(server.engine.submit(request(&[1; 40], 10)).await.unwrap()).await;
    reason.unwrap();
    let published = server.idle_stats(1).await.checkpoints_published;
    assert!(published > 1);
    for _ in 0..2000 {
        if server.engine.stats().tiers.memory.stores == published {
            return server.close().await;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("{published} were published: {:?}", server.engine.stats());
}

#[tokio::test]
async fn times_are_those_that_a_client_would_measure() {
    let step_time = Duration::from_millis(4);
    let server = Server::start(AMPLE_PAGES, None, step_time, EngineLimits::default());
    let mut endless = request(&[1, 2, 3], 10);
    endless.ignore_eos = true;
    let started = clock::now();
    read(server.engine.submit(endless).await.unwrap()).await.1.unwrap();
    let measured = started.elapsed().as_secs_f64();
    let histograms = server.engine.histograms();
    let [first, rest, whole] =
        [&histograms.time_to_first_token, &histograms.inter_token_time, &histograms.request_duration]
            .map(|histogram| histogram.read().sum);
    // An initialization and a prefill come before the first token, and a decode step before each other. When the first token
    // is seen late, the steps after it have gone on meanwhile, so that only the sum has the second bound.
    assert!(
        first >= 2.0 * step_time.as_secs_f64() && first + rest >= 11.0 * step_time.as_secs_f64(),
        "{first} {rest}"
    );
    // The last token and the end may be one moment, and each sum is rounded to a float of its own.
    let rounding = 1e-9;
    assert!(first + rest <= whole + rounding && whole <= measured, "{first} + {rest}, {whole}, {measured}");
    server.idle_stats(1).await;
    let steps = histograms.step_durations.by_operation();
    let busy: f64 = steps.iter().map(|(_, durations)| durations.read().sum).sum();
    assert!(busy <= started.elapsed().as_secs_f64() && busy >= 11.0 * step_time.as_secs_f64(), "{busy}");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn constrained_requests_say_what_their_grammars_allow_and_others_what_they_like() {
    let server = Server::start(30, None, Duration::from_micros(50), EngineLimits::default());
    let vocabulary = Vocabulary::new(&byte_level_tokenizer(), &[END_TOKEN], VOCABULARY);
    let compiler = GrammarCompiler::new(vocabulary, GrammarLimits::default()).unwrap();
    let choice = GrammarSource::Choice(vec!["yes".into(), "no".into()]);
    let regex = |text: &str| GrammarSource::Regex(text.to_owned());
    let sources = [choice, regex("[ab]{30}"), regex("[ab]+")];
    let constraints = sources.map(|source| compiler.compile(&source, &Envelope::default()).unwrap());
    let mut generations = Vec::new();
    for index in 0..18u32 {
        let mut request = request(&[index, 7, 9], 60);
        request.constraint = constraints.get(index as usize % 4).cloned().map(Box::new);
        // Where a grammar lets an end token through, it ends the request all the same.
        request.ignore_eos = request.constraint.is_some();
        // Without a choice the tokens of a preempted request are those of its history.
        request.sampling.top_k = 1;
        generations.push((request.clone(), server.engine.submit(request).await.unwrap()));
    }
    for (index, (request, generation)) in generations.into_iter().enumerate() {
        let (mut tokens, reason) = read(generation).await;
        if request.constraint.is_none() {
            check_whole(&request, &tokens, reason.unwrap());
            continue;
        }
        // Where nothing but the end can follow, it is not sampled.
        let is_open = index % 4 == 2;
        let has_end = tokens.pop_if(|last| last.token == END_TOKEN).is_some();
        let ends = if is_open && !has_end { FinishReason::Length } else { FinishReason::EndToken };
        assert_eq!((has_end && !is_open, reason), (false, Ok(ends)));
        let text: String = tokens.iter().map(|token| char::from(token.token.0 as u8)).collect();
        let is_of_two_letters = text.chars().all(|letter| "ab".contains(letter));
        match index % 4 {
            0 => assert!(text == "yes" || text == "no", "{text}"),
            1 => assert!(text.len() == 30 && is_of_two_letters, "{text}"),
            _ => assert!(!text.is_empty() && is_of_two_letters, "{text}"),
        }
    }
    assert!(server.idle_stats(18).await.preemptions > 0);
    server.close().await;
}

#[tokio::test]
async fn a_lone_constrained_request_ends_with_its_answer() {
    let server = Server::start(AMPLE_PAGES, None, Duration::ZERO, EngineLimits::default());
    let vocabulary = Vocabulary::new(&byte_level_tokenizer(), &[END_TOKEN], VOCABULARY);
    let compiler = GrammarCompiler::new(vocabulary, GrammarLimits::default()).unwrap();
    // An answer without text takes its end token's step.
    for (grammar, length) in [("start: /[ab]{9}/", 9), ("start: \"\"", 1)] {
        let source = GrammarSource::Lark(grammar.to_owned());
        let mut request = request(&[1, 2, 3], 60);
        request.ignore_eos = true;
        request.constraint = Some(Box::new(compiler.compile(&source, &Envelope::default()).unwrap()));
        let (tokens, reason) = read(server.engine.submit(request).await.unwrap()).await;
        assert_eq!((tokens.len(), reason), (length, Ok(FinishReason::EndToken)));
    }
    // The first mask is made beside the prefill; that of each token after it, and that of the end, once a step has begun.
    assert_eq!(server.early_launches.load(Ordering::Relaxed), 9);
    server.close().await;
}

#[tokio::test]
async fn a_preempted_stream_goes_on_without_repeats() {
    // One context fits; three requests want one each.
    let server = Server::start(26, None, Duration::ZERO, EngineLimits::default());
    let mut generations = Vec::new();
    for seed in 1..=6u32 {
        let mut request = request(&[seed, seed + 1, seed + 2], 90);
        request.ignore_eos = true;
        // Without a choice the tokens depend on the history alone, so they show whether it was kept.
        request.sampling.top_k = 1;
        generations.push((request.clone(), server.engine.submit(request).await.unwrap()));
    }
    for (request, generation) in generations {
        let (tokens, reason) = read(generation).await;
        check_whole(&request, &tokens, reason.unwrap());
    }
    let stats = server.idle_stats(6).await;
    assert!(stats.preemptions > 0 && stats.prompt_tokens_computed > 6 * 3, "{stats:?}");
    assert_eq!(stats.tokens_generated, 6 * 90);
    assert_eq!(stats.pages_free + stats.pages_cached, 26);
    check_histograms(&server, &stats);
    server.close().await;
}

#[tokio::test]
async fn a_full_device_queue_delays_and_harms_nothing() {
    let server = Server::start(AMPLE_PAGES, Some(Fault::Narrow), Duration::ZERO, EngineLimits::default());
    let request = request(&[1, 2, 3], 30);
    let (tokens, reason) = read(server.engine.submit(request.clone()).await.unwrap()).await;
    check_whole(&request, &tokens, reason.unwrap());
    server.close().await;
}

#[tokio::test]
async fn what_a_core_cannot_honour_is_refused_by_name() {
    let server = Server::start(10, None, Duration::ZERO, EngineLimits::default());
    type Change = fn(&mut GenerationRequest);
    let cases: [(Change, &str); 13] = [
        (|request| request.prompt = Arc::from([]), "must not be empty"),
        (|request| request.output_tokens_max = 0, "must not be empty"),
        (|request| request.prompt = Arc::from([TokenId(VOCABULARY)]), "prompt token 500"),
        (|request| request.prompt = vec![TokenId(1); CONTEXT_TOKENS as usize].into(), "context holds 96"),
        (|request| request.prompt = vec![TokenId(1); 60].into(), "needs 16 KV pages"),
        (|request| request.sampling.logit_bias = vec![(TokenId(VOCABULARY), 0.0)], "logit_bias token 500"),
        (|request| request.sampling.logit_bias = vec![(TokenId(1), 0.0); 7], "7 entries"),
        (|request| request.sampling.logit_bias = vec![(TokenId(1), f32::NAN)], "finite"),
        (|request| request.logprobs = Some(6), "6 logprobs"),
        (|request| request.sampling.temperature = 0.0, "temperature"),
        (|request| request.sampling.top_p = 0.0, "top_p"),
        (|request| request.sampling.min_p = f32::NAN, "min_p"),
        (|request| request.sampling.repetition_penalty = f32::INFINITY, "repetition_penalty"),
    ];
    for (change, message) in cases {
        let mut request = request(&[1, 2, 3], 30);
        change(&mut request);
        let (tokens, outcome) = read(server.engine.submit(request).await.unwrap()).await;
        let error = outcome.unwrap_err();
        assert!(tokens.is_empty() && error.to_string().contains(message), "{error}");
    }
    assert_eq!(server.idle_stats(13).await.requests_failed, 13);
    assert_eq!(server.launches.load(Ordering::Relaxed), 0);
    server.close().await;
}

#[tokio::test]
async fn a_slow_reader_loses_its_own_request_and_no_other() {
    let limits = EngineLimits { events_max: 8, ..EngineLimits::default() };
    let server = Server::start(AMPLE_PAGES, None, Duration::from_millis(5), limits);
    let mut endless = request(&[1, 2, 3], 80);
    endless.ignore_eos = true;
    // However slowly it is read, its events have room.
    let brief = GenerationRequest { output_tokens_max: 6, ..endless.clone() };
    let slow = server.engine.submit(endless.clone()).await.unwrap();
    let mut whole = 0;
    while whole == 0 || server.engine.stats().requests_failed == 0 {
        let (tokens, reason) = read(server.engine.submit(brief.clone()).await.unwrap()).await;
        check_whole(&brief, &tokens, reason.unwrap());
        whole += 1;
    }
    let (tokens, outcome) = read(slow).await;
    assert!(matches!(outcome, Err(EngineError::SlowConsumer { .. })), "{outcome:?}");
    assert_eq!(ids(&tokens), expected(&endless)[..tokens.len()], "what was sent before is right");
    assert_eq!(server.idle_stats(whole + 1).await.requests_failed, 1);
    server.close().await;
}

#[tokio::test]
async fn every_failure_is_told_to_every_request_and_refuses_later_ones() {
    let faults = [
        (Fault::Launch(1), "Launch(1)"),
        (Fault::Launch(9), "Launch(9)"),
        (Fault::Upload(30), "Upload(30)"),
        (Fault::Wait(7), "Wait(7)"),
        (Fault::Read(5), "Read(5)"),
        (Fault::Panic(6), "panicked"),
        (Fault::Record(8, CompletionField::Epoch, 77), "epoch 77"),
        (Fault::Record(8, CompletionField::Slot, -1), "SLOT is -1"),
        (Fault::Record(8, CompletionField::Status, 2), "was refused by slot"),
        (Fault::Record(8, CompletionField::Status, 9), "STATUS is 9"),
        (Fault::Record(8, CompletionField::Family, 3), "FAMILY is 3"),
        (Fault::Record(8, CompletionField::Consumed, 1), "consumed: 1"),
        (Fault::Record(8, CompletionField::TokenCount, 2), "TOKEN_COUNT is 2"),
        (Fault::Record(8, CompletionField::Finished, 3), "FINISHED is 3"),
        (Fault::Record(8, CompletionField::LogprobCount, 6), "LOGPROB_COUNT is 6"),
    ];
    for (fault, message) in faults {
        let server = Server::start(AMPLE_PAGES, Some(fault), Duration::ZERO, EngineLimits::default());
        let mut generations = Vec::new();
        for prompt in 1..=8 {
            let mut request = request(&[prompt; 8], 60);
            request.ignore_eos = true;
            // The engine may have failed already.
            match server.engine.submit(request).await {
                Ok(generation) => generations.push(generation),
                Err(error) => assert!(error.to_string().contains(message), "{error}"),
            }
        }
        for generation in generations {
            let error = read(generation).await.1.unwrap_err();
            assert!(matches!(&error, EngineError::Execution(text) if text.contains(message)), "{error}");
        }
        let late = server.engine.submit(request(&[1], 1)).await.unwrap_err();
        assert!(late.to_string().contains(message), "{late}");
        assert!(server.engine.stats().failed);
        server.close().await;
    }
}

#[tokio::test]
async fn a_shutdown_drains_what_runs_or_ends_it_in_time() {
    let mut endless = request(&[1, 2, 3], 80);
    endless.ignore_eos = true;
    for drain_timeout_ms in [60_000, 0] {
        let server = Server::start(AMPLE_PAGES, None, Duration::from_micros(500), EngineLimits::default());
        let mut running = server.engine.submit(endless.clone()).await.unwrap();
        assert!(matches!(running.events.recv().await, Some(GenerationEvent::Admitted { .. })));
        assert!(matches!(running.events.recv().await, Some(GenerationEvent::Token(_))));
        server.engine.shutdown(drain_timeout_ms).await;
        let late = server.engine.submit(endless.clone()).await.unwrap_err();
        assert_eq!(late, EngineError::ShuttingDown);
        server.worker.join();
        let mut last = None;
        let mut tokens = 1;
        while let Some(event) = running.events.recv().await {
            tokens += usize::from(matches!(event, GenerationEvent::Token(_)));
            last = Some(event);
        }
        if drain_timeout_ms > 0 {
            assert_eq!((tokens, last), (80, Some(GenerationEvent::Finished(FinishReason::Length))));
        } else {
            assert_eq!(last, Some(GenerationEvent::Failed(EngineError::ShuttingDown)));
        }
    }
}

#[tokio::test]
async fn the_thread_ends_by_itself_once_nobody_can_ask_for_more() {
    let server = Server::ample();
    let request = request(&[5, 6], 20);
    let generation = server.engine.submit(request.clone()).await.unwrap();
    drop(server.engine);
    let (tokens, reason) = read(generation).await;
    check_whole(&request, &tokens, reason.unwrap());
    server.worker.join();
}
