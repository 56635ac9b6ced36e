//! Clients that keep many requests waiting beside clients that ask one at a time: how long these wait.
//!
//! Slots are short, pages are not, so that nothing but its turn keeps a request waiting.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{ClientId, Digest, RequestId, TokenId};
use crate::schedule::{Event, Geometry, Output, Prompt, Scheduler, SchedulerLimits};

use super::device::SimDevice;
use super::random::Random;
use super::workload::random_geometry;

const SEEDS: u64 = 150;
/// Requests of each client that asks one at a time.
const MODEST_REQUESTS: u32 = 12;
/// Requests that a greedy client keeps waiting.
const GREEDY_WAITING: usize = 24;
const VOCABULARY: u32 = 1000;

struct Simulation {
    random: Random,
    now: Duration,
    geometry: Geometry,
    scheduler: Scheduler,
    device: SimDevice,
    /// Those before `greedy` are greedy, the others modest.
    clients: u32,
    greedy: u32,
    /// Requests that are not announced, their clients, and how many had a slot before they came.
    waiting: BTreeMap<RequestId, (ClientId, u32)>,
    running: BTreeMap<RequestId, ClientId>,
    admitted: u32,
    last: RequestId,
    /// The most requests of others that were admitted while a modest one waited.
    longest_wait: u32,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut geometry = random_geometry(&mut random);
        geometry.context_tokens_max = geometry.context_tokens_max.max(16);
        geometry.pages = geometry.pages_for(geometry.context_tokens_max) * geometry.slots;
        geometry.snapshots = 0;
        let limits = SchedulerLimits { waiting_max: 1000, steps_in_flight_max: 2 };
        let greedy = random.within(1..=3);
        Self {
            now: Duration::ZERO,
            scheduler: Scheduler::new(geometry.clone(), limits).unwrap(),
            device: SimDevice::new(&geometry, VOCABULARY),
            clients: greedy + random.within(1..=3),
            greedy,
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            admitted: 0,
            last: RequestId(0),
            longest_wait: 0,
            geometry,
            random,
        }
    }

    fn run(mut self) -> Self {
        let mut modest_left = vec![MODEST_REQUESTS; (self.clients - self.greedy) as usize];
        while modest_left.iter().any(|&left| left > 0) || !self.running.is_empty() || !self.waiting.is_empty()
        {
            let is_open = modest_left.iter().any(|&left| left > 0);
            for client in (0..self.greedy).map(ClientId).filter(|_| is_open) {
                while self.waiting.values().filter(|(one, _)| *one == client).count() < GREEDY_WAITING {
                    self.ask(client);
                }
            }
            for (left, client) in modest_left.iter_mut().zip((self.greedy..self.clients).map(ClientId)) {
                let is_there = self
                    .waiting
                    .values()
                    .map(|(one, _)| one)
                    .chain(self.running.values())
                    .any(|&one| one == client);
                if *left > 0 && !is_there && self.random.chance(20) {
                    *left -= 1;
                    self.ask(client);
                }
            }
            self.step();
        }
        self
    }

    fn ask(&mut self, client: ClientId) {
        self.last = RequestId(self.last.0 + 1);
        // Those that have a slot and are not announced are not ahead of it in the queue.
        let placed = self.waiting.len() as u32 - self.scheduler.stats().waiting;
        self.waiting.insert(self.last, (client, self.admitted + placed));
        let prompt = Prompt {
            // Equally long, so that they are announced in the order in which they got their slots.
            tokens: (0..4).map(|_| TokenId(self.random.within(0..=VOCABULARY - 1))).collect(),
            endpoints: Arc::default(),
            root: Digest([0; 32]),
            conditions: Arc::default(),
            is_constrained: false,
        };
        let output_tokens_max = self.random.within(1..=self.geometry.context_tokens_max);
        self.handle(Event::Submit { request: self.last, client, prompt, output_tokens_max });
    }

    fn step(&mut self) {
        self.now += Duration::from_millis(1);
        if let Some(step) = self.scheduler.plan(self.now) {
            self.device.submit(step, self.now + Duration::from_millis(1));
        }
        if let Some(records) = self.device.complete(self.now) {
            self.handle(Event::Completed { records: &records });
        }
    }

    fn handle(&mut self, event: Event<'_>) {
        self.scheduler.handle(event, self.now).unwrap();
        for output in self.scheduler.drain_outputs() {
            match output {
                Output::Admitted { request, .. } => {
                    let (client, admitted) = self.waiting.remove(&request).unwrap();
                    self.running.insert(request, client);
                    if client.0 >= self.greedy {
                        self.longest_wait = self.longest_wait.max(self.admitted - admitted);
                    }
                    self.admitted += 1;
                }
                Output::Token { .. } => {}
                Output::Ended { request, .. } => {
                    self.running.remove(&request).expect("every request is admitted");
                }
            }
        }
        self.scheduler.check_integrity().unwrap();
    }
}

/// A client that asks one at a time waits for at most two requests of each other client: one in the round that is being
/// admitted, and one in the next.
#[test]
fn a_modest_client_waits_for_two_requests_of_each_other_at_most() {
    let mut longest = 0;
    for seed in 0..SEEDS {
        let outcome = std::panic::catch_unwind(|| Simulation::new(seed).run());
        let simulation = outcome.unwrap_or_else(|_| panic!("seed {seed} failed"));
        let bound = 2 * (simulation.clients - 1);
        let wait = simulation.longest_wait;
        assert!(
            wait <= bound,
            "seed {seed}: {wait} requests went ahead of a modest client's, and {bound} may"
        );
        assert!(
            simulation.admitted > 2 * MODEST_REQUESTS,
            "seed {seed}: the greedy clients were served as well"
        );
        longest = longest.max(wait);
    }
    assert!(longest > 2, "modest clients have to wait, {longest}");
}
