//! Seeded workloads: clients of several tempers against every geometry, with invariants checked after every step.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{RequestId, TokenId};
use crate::schedule::{
    Capacity, Ending, Event, Finish, Geometry, Operation, Output, Rejection, Scheduler, SchedulerLimits,
};

use super::device::SimDevice;
use super::model::{END_TOKEN, next_token};
use super::random::{Random, mix};

const SMOKE_SEEDS: u64 = 400;
/// Ticks within which a workload must have ended; several times what the slowest seed takes.
const TICKS_MAX: u32 = 60_000;

/// A client and all that it has seen.
#[derive(Debug)]
struct Client {
    prompt: Arc<[TokenId]>,
    output_tokens_max: u32,
    /// Leaves after so many tokens.
    patience_tokens: Option<u32>,
    is_admitted: bool,
    tokens: Vec<TokenId>,
    ending: Option<Ending>,
}

/// What happened over a run, so that the smoke set can show that it exercised what it is meant to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Coverage {
    counts: BTreeMap<&'static str, u64>,
    trace: u64,
}

impl Coverage {
    fn saw(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn trace(&mut self, what: &impl std::fmt::Debug) {
        for byte in format!("{what:?}").bytes() {
            self.trace = mix(self.trace ^ u64::from(byte));
        }
    }
}

struct Simulation {
    random: Random,
    now: Duration,
    scheduler: Scheduler,
    device: SimDevice,
    geometry: Geometry,
    vocabulary: u32,
    clients: BTreeMap<RequestId, Client>,
    arrivals_left: u32,
    shuts_down_after_arrivals: Option<u32>,
    is_shut_down: bool,
    coverage: Coverage,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let geometry = random_geometry(&mut random);
        let limits =
            SchedulerLimits { waiting_max: random.within(2..=40), steps_in_flight_max: random.within(1..=2) };
        let vocabulary = *random.pick(&[8, 40, 1000]);
        let arrivals_left = random.within(10..=60);
        Self {
            now: Duration::ZERO,
            scheduler: Scheduler::new(geometry.clone(), limits).unwrap(),
            device: SimDevice::new(&geometry, vocabulary),
            vocabulary,
            clients: BTreeMap::new(),
            arrivals_left,
            shuts_down_after_arrivals: random.chance(15).then(|| random.within(0..=arrivals_left)),
            is_shut_down: false,
            coverage: Coverage::default(),
            geometry,
            random,
        }
    }

    fn run(mut self) -> Coverage {
        for _ in 0..TICKS_MAX {
            if self.arrivals_left == 0 && self.scheduler.is_idle() {
                self.check_end();
                return self.coverage;
            }
            self.tick();
        }
        panic!("still running: {:#?}", self.scheduler);
    }

    fn tick(&mut self) {
        self.now += Duration::from_micros(u64::from(self.random.within(0..=2000)));
        let is_quiet = self.scheduler.is_idle();
        if self.arrivals_left > 0 && (is_quiet || self.random.chance(15)) {
            self.arrive();
        }
        if self.random.chance(2) {
            self.cancel_anyone();
        }
        if self.shuts_down_after_arrivals.is_some_and(|left| self.arrivals_left <= left) && !self.is_shut_down
        {
            self.is_shut_down = true;
            let drain = Duration::from_micros(u64::from(self.random.within(0..=200_000)));
            self.handle(Event::Shutdown { drain });
        }
        if self.random.chance(80) {
            self.submit();
        }
        if let Some(records) = self.device.complete(self.now) {
            self.handle(Event::Completed { records: &records });
        }
    }

    fn submit(&mut self) {
        let Some(step) = self.scheduler.plan(self.now) else {
            self.settle();
            return;
        };
        self.coverage.trace(step);
        match step.operation {
            Operation::Initialize { generated_before, .. } if generated_before > 0 => {
                self.coverage.saw("readmission");
            }
            Operation::Initialize { .. } => {}
            Operation::Prefill { sample: false, .. } => self.coverage.saw("chunk"),
            Operation::Prefill { .. } => self.coverage.saw("last chunk"),
            Operation::Decode { .. } if !self.device.is_idle() => self.coverage.saw("pipelined decode"),
            Operation::Decode { .. } => self.coverage.saw("decode"),
        }
        let duration = Duration::from_micros(u64::from(self.random.within(0..=8000)));
        self.device.submit(step, self.now + duration);
        self.settle();
    }

    fn arrive(&mut self) {
        self.arrivals_left -= 1;
        let context = self.geometry.context_tokens_max;
        let length_max = *self.random.pick(&[4, context / 4, context / 2, context + 2]);
        let length = self.random.within(0..=length_max);
        let prompt: Vec<TokenId> =
            (0..length).map(|_| TokenId(self.random.within(0..=self.vocabulary - 1))).collect();
        let client = Client {
            prompt: prompt.into(),
            output_tokens_max: self.random.within(0..=context),
            patience_tokens: self.random.chance(20).then(|| self.random.within(0..=10)),
            is_admitted: false,
            tokens: Vec::new(),
            ending: None,
        };
        let request = RequestId(self.clients.len() as u64 + 1);
        let (prompt, output_tokens_max) = (Arc::clone(&client.prompt), client.output_tokens_max);
        self.clients.insert(request, client);
        self.handle(Event::Submit { request, prompt, output_tokens_max });
    }

    fn cancel_anyone(&mut self) {
        let request = RequestId(u64::from(self.random.within(0..=self.clients.len() as u32)));
        self.handle(Event::Cancel { request });
    }

    fn handle(&mut self, event: Event<'_>) {
        self.scheduler.handle(event, self.now).expect("the simulated device keeps its word");
        self.settle();
    }

    /// Delivers outputs and checks every invariant.
    fn settle(&mut self) {
        let outputs: Vec<Output> = self.scheduler.drain_outputs().collect();
        let mut leavers = Vec::new();
        for output in outputs {
            self.coverage.trace(&output);
            match output {
                Output::Admitted { request } => {
                    let client = self.clients.get_mut(&request).unwrap();
                    assert!(!client.is_admitted && client.ending.is_none());
                    client.is_admitted = true;
                }
                Output::Token { request, token, .. } => {
                    let client = self.clients.get_mut(&request).unwrap();
                    assert!(client.is_admitted && client.ending.is_none());
                    client.tokens.push(token);
                    if client.patience_tokens.is_some_and(|patience| client.tokens.len() as u32 > patience) {
                        leavers.push(request);
                    }
                }
                Output::Ended { request, ending } => self.end(request, ending),
            }
        }
        self.scheduler.check_integrity().unwrap();
        for request in leavers {
            self.handle(Event::Cancel { request });
        }
    }

    fn end(&mut self, request: RequestId, ending: Ending) {
        let client = self.clients.get_mut(&request).unwrap();
        assert_eq!(client.ending, None, "a request ends once");
        client.ending = Some(ending);
        let context = self.geometry.context_tokens_max;
        let history = client.prompt.len() + client.tokens.len();
        match ending {
            Ending::Finished(Finish::EndToken) => {
                assert_eq!(client.tokens.last(), Some(&END_TOKEN));
                self.coverage.saw("end token");
            }
            Ending::Finished(Finish::Length) => {
                let limit = client.output_tokens_max.min(context - client.prompt.len() as u32);
                if self.geometry.pages_for(history as u32) > self.geometry.pages {
                    assert!(client.tokens.len() as u32 <= limit);
                    self.coverage.saw("longer than the pool");
                } else {
                    assert_eq!(client.tokens.len() as u32, limit);
                    self.coverage.saw("length");
                }
            }
            Ending::Rejected(rejection) => {
                assert!(!client.is_admitted);
                self.coverage.saw(match rejection {
                    Rejection::QueueFull { .. } => "queue full",
                    Rejection::Empty => "empty",
                    Rejection::PromptTooLong { .. } => "prompt too long",
                    Rejection::PoolTooSmall { .. } => "pool too small",
                    Rejection::ShuttingDown => "refused at shutdown",
                });
            }
            Ending::Cancelled if !client.is_admitted => self.coverage.saw("cancelled while waiting"),
            Ending::Cancelled if client.tokens.is_empty() => self.coverage.saw("cancelled in prefill"),
            Ending::Cancelled => self.coverage.saw("cancelled in decode"),
            Ending::ShutDown => self.coverage.saw("ended by shutdown"),
        }
    }

    /// Everyone has an answer, every token is what the history alone gives, and nothing is still held.
    fn check_end(&mut self) {
        for (request, client) in &self.clients {
            assert!(client.ending.is_some(), "request {request} has no end");
            let mut history = client.prompt.to_vec();
            for &token in &client.tokens {
                assert_eq!(token, next_token(&history, 0, self.vocabulary), "a token of request {request}");
                history.push(token);
            }
        }
        let stats = self.scheduler.stats();
        assert_eq!((stats.running, stats.waiting), (0, 0));
        assert_eq!((stats.pages_free, stats.slots_free), (stats.pages, stats.slots));
        *self.coverage.counts.entry("preemption").or_default() += stats.preemptions;
    }
}

fn random_geometry(random: &mut Random) -> Geometry {
    let page_tokens = *random.pick(&[1, 4, 16, 64]);
    let context_tokens_max = random.within(2..=160);
    let pages_of_context = context_tokens_max.div_ceil(page_tokens);
    let slots = random.within(1..=6);
    let pages = match random.within(0..=2) {
        0 => random.within(1..=pages_of_context),
        1 => pages_of_context + random.within(0..=pages_of_context),
        _ => pages_of_context * slots,
    };
    let mut capacities = |sizes: &[u32], largest: u32| -> Vec<Capacity> {
        let kept: Vec<u32> = sizes
            .iter()
            .copied()
            .filter(|&size| size < largest && random.chance(60))
            .chain([largest])
            .collect();
        kept.iter().map(|&size| Capacity { size, cost_ns: u64::from(random.within(1..=100)) }).collect()
    };
    Geometry {
        page_tokens,
        pages,
        slots,
        context_tokens_max,
        prefill: capacities(&[4, 8, 16], 32),
        decode: capacities(&[1, 2, 4], slots.next_power_of_two()),
        frames: 2,
    }
}

fn run(seed: u64) -> Coverage {
    let outcome = std::panic::catch_unwind(|| Simulation::new(seed).run());
    outcome.unwrap_or_else(|_| panic!("seed {seed} failed; replay it with FLARE_SIM_SEED={seed}"))
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("the variable holds a number"))
}

#[test]
fn every_seed_keeps_the_invariants_and_ends() {
    if let Some(seed) = variable("FLARE_SIM_SEED") {
        run(seed);
        return;
    }
    let mut total: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in 0..variable("FLARE_SIM_SEEDS").unwrap_or(SMOKE_SEEDS) {
        for (what, count) in run(seed).counts {
            *total.entry(what).or_default() += count;
        }
    }
    println!("{total:?}");
    let expected = [
        "cancelled in decode",
        "cancelled in prefill",
        "cancelled while waiting",
        "chunk",
        "decode",
        "empty",
        "end token",
        "ended by shutdown",
        "last chunk",
        "length",
        "longer than the pool",
        "pipelined decode",
        "pool too small",
        "preemption",
        "prompt too long",
        "queue full",
        "readmission",
        "refused at shutdown",
    ];
    for what in expected {
        assert!(total.get(what).is_some_and(|&count| count >= 10), "the seeds hardly reach: {what}");
    }
}

#[test]
fn equal_events_give_equal_plans() {
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed));
    }
}
