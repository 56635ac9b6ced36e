//! The scheduler's rules one by one; `sim` tries them together.

mod caching;
mod masks;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::ids::{ClientId, Digest, Epoch, RequestId, TokenId};
use crate::sim::device::SimDevice;

/// Large enough that the simulated model hardly ever samples its end token.
const VOCABULARY: u32 = 1 << 20;

/// A scheduler on a device whose every fence is due at once.
struct Desk {
    scheduler: Scheduler,
    device: SimDevice,
    told: BTreeMap<RequestId, Vec<Output>>,
    admissions: Vec<u64>,
}

fn geometry(pages: u32, snapshots: u32) -> Geometry {
    let capacity = |size| Capacity { size, cost_ns: 1000 * u64::from(size) };
    Geometry {
        page_tokens: 4,
        pages,
        snapshots,
        slots: 4,
        context_tokens_max: 64,
        prefill: vec![capacity(8), capacity(16)],
        decode: vec![capacity(1), capacity(2), capacity(4)],
        frames: 2,
    }
}

impl Desk {
    /// Without a cache.
    fn new(pages: u32) -> Self {
        Self::with_snapshots(pages, 0)
    }

    fn with_snapshots(pages: u32, snapshots: u32) -> Self {
        let geometry = geometry(pages, snapshots);
        let limits = SchedulerLimits { waiting_max: 100, steps_in_flight_max: 2 };
        let scheduler = Scheduler::new(geometry.clone(), limits).unwrap();
        let device = SimDevice::new(&geometry, VOCABULARY);
        Self { scheduler, device, told: BTreeMap::new(), admissions: Vec::new() }
    }

    fn submit(&mut self, request: u64, prompt_tokens: u32, output_tokens_max: u32) {
        self.submit_tokens(request, (1..=prompt_tokens).map(TokenId).collect(), &[], output_tokens_max);
    }

    fn submit_tokens(
        &mut self,
        request: u64,
        tokens: Vec<TokenId>,
        endpoints: &[u32],
        output_tokens_max: u32,
    ) {
        self.submit_for(ClientId(0), request, tokens, endpoints, output_tokens_max);
    }

    fn submit_for(
        &mut self,
        client: ClientId,
        request: u64,
        tokens: Vec<TokenId>,
        endpoints: &[u32],
        output_tokens_max: u32,
    ) {
        let root = Digest([0; 32]);
        let prompt = Prompt {
            tokens: tokens.into(),
            endpoints: endpoints.into(),
            root,
            conditions: Arc::default(),
            is_constrained: false,
        };
        self.handle(Event::Submit { request: RequestId(request), client, prompt, output_tokens_max });
    }

    fn handle(&mut self, event: Event<'_>) {
        self.scheduler.handle(event, Duration::ZERO).unwrap();
        self.settle();
    }

    /// Plans a step and leaves it in flight.
    fn step(&mut self) -> Option<Step> {
        let step = self.scheduler.plan(Duration::ZERO).cloned();
        if let Some(step) = &step {
            self.device.submit(step, Duration::ZERO);
        }
        self.settle();
        step
    }

    fn complete(&mut self) {
        let records = self.device.complete(Duration::ZERO).expect("something is in flight");
        self.handle(Event::Completed { records: &records });
    }

    fn settle(&mut self) {
        for output in self.scheduler.drain_outputs() {
            let (Output::Admitted { request, .. }
            | Output::Token { request, .. }
            | Output::Ended { request, .. }) = output;
            if matches!(output, Output::Admitted { .. }) {
                self.admissions.push(request.0);
            }
            self.told.entry(request).or_default().push(output);
        }
        self.scheduler.check_integrity().unwrap();
    }

    /// Runs steps one by one until `until` or until nothing is left.
    fn run(&mut self, until: impl Fn(&Self) -> bool) -> Vec<Operation> {
        let mut operations = Vec::new();
        while !until(self) && !self.scheduler.is_idle() {
            // Planning may end the last request instead.
            let Some(step) = self.step() else {
                assert!(self.scheduler.is_idle(), "an idle device gets a step");
                break;
            };
            operations.push(step.operation);
            self.complete();
        }
        operations
    }

    fn ending(&self, request: u64) -> Option<Ending> {
        match self.told.get(&RequestId(request))?.last()? {
            Output::Ended { ending, .. } => Some(*ending),
            _ => None,
        }
    }

    fn tokens(&self, request: u64) -> usize {
        let told = self.told.get(&RequestId(request)).map_or(&[][..], Vec::as_slice);
        told.iter().filter(|output| matches!(output, Output::Token { .. })).count()
    }

    fn free(&self) -> (u32, u32) {
        let stats = self.scheduler.stats();
        (stats.pages_free, stats.slots_free)
    }
}

fn rejected(rejection: Rejection) -> Option<Ending> {
    Some(Ending::Rejected(rejection))
}

#[test]
fn a_request_that_can_never_run_is_rejected_at_once() {
    let mut desk = Desk::new(8);
    desk.submit(1, 64, 1);
    let too_long = Rejection::PromptTooLong { prompt_tokens: 64, context_tokens_max: 64 };
    assert_eq!(desk.ending(1), rejected(too_long));
    desk.submit(2, 32, 10);
    assert_eq!(desk.ending(2), rejected(Rejection::PoolTooSmall { pages: 9, pages_max: 8 }));
    desk.submit(3, 0, 1);
    assert_eq!(desk.ending(3), rejected(Rejection::Empty));
    // One output token is never consumed, so the prompt's pages are enough.
    desk.submit(4, 32, 1);
    assert_eq!(desk.ending(4), None);
}

#[test]
fn the_queue_is_bounded() {
    let mut desk = Desk::new(8);
    for request in 1..=101 {
        desk.submit(request, 4, 4);
    }
    assert_eq!(desk.ending(100), None);
    assert_eq!(desk.ending(101), rejected(Rejection::QueueFull { waiting: 100 }));
}

#[test]
fn a_prompt_is_initialized_chunked_and_then_decoded_ahead_of_its_completions() {
    let mut desk = Desk::new(32);
    desk.submit(1, 20, 4);
    let step = desk.step().unwrap();
    assert_eq!(step.operation, Operation::Initialize { output_limit: 4, generated_before: 0 });
    assert_eq!((step.tokens.len(), step.page_updates.len()), (20, 6));
    assert_eq!(desk.step(), None, "initialization stands alone");
    desk.complete();

    let step = desk.step().unwrap();
    assert_eq!(step.operation, Operation::Prefill { capacity: 16, consumed: 0, sample: false });
    assert_eq!(step.tokens, (1..=16).map(TokenId).collect::<Vec<_>>());
    assert_eq!(desk.step(), None, "so does prefill");
    desk.complete();
    let step = desk.step().unwrap();
    assert_eq!(step.operation, Operation::Prefill { capacity: 8, consumed: 16, sample: true });
    assert_eq!(step.tokens, (17..=20).map(TokenId).collect::<Vec<_>>());
    desk.complete();
    assert_eq!(desk.tokens(1), 1);

    let first = desk.step().unwrap();
    assert_eq!(first.operation, Operation::Decode { capacity: 1 });
    let second = desk.step().unwrap();
    assert_eq!(second.lanes[0].consumed_after, first.lanes[0].consumed_after + 1);
    assert_ne!(first.frame, second.frame);
    assert_eq!(desk.step(), None, "two steps are in flight");
    desk.complete();
    assert!(desk.step().is_some(), "the fourth token");
    desk.complete();
    assert_eq!(desk.step(), None, "the limit is known: nothing is submitted past it");
    desk.complete();
    assert_eq!(desk.ending(1), Some(Ending::Finished(Finish::Length)));
    assert_eq!(desk.free(), (32, 4));
}

#[test]
fn prefill_chunks_and_decode_batches_alternate() {
    let mut desk = Desk::new(64);
    desk.submit(1, 4, 30);
    desk.run(|desk| desk.tokens(1) == 2);
    desk.submit(2, 50, 2);
    let operations = desk.run(|desk| desk.tokens(2) == 1);
    let is_prefill: Vec<bool> = operations
        .iter()
        .filter(|operation| !matches!(operation, Operation::Initialize { .. }))
        .map(|operation| matches!(operation, Operation::Prefill { .. }))
        .collect();
    // Chunks of 16 cost no less a token, so that only 8 tokens come between two decode steps.
    assert_eq!(is_prefill.len(), 13);
    assert!(is_prefill.iter().enumerate().all(|(index, is_prefill)| *is_prefill == index.is_multiple_of(2)));
}

#[test]
fn a_batch_takes_the_smallest_capacity_that_holds_it() {
    let mut desk = Desk::new(64);
    for request in 1..=3 {
        desk.submit(request, 4, 8 * request as u32);
    }
    let operations = desk.run(|_| false);
    let capacities: Vec<u32> = operations
        .iter()
        .filter_map(|operation| match operation {
            Operation::Decode { capacity } => Some(*capacity),
            _ => None,
        })
        .collect();
    assert!(capacities.contains(&4) && capacities.contains(&2), "{capacities:?}");
    assert_eq!(capacities.last(), Some(&1));
}

#[test]
fn a_smaller_request_passes_one_that_waits_for_pages_but_not_for_ever() {
    let mut desk = Desk::new(16);
    desk.submit(1, 20, 40);
    desk.run(|desk| desk.tokens(1) == 1);
    let large = 2;
    desk.submit(large, 48, 4);
    let mut last = large;
    while !desk.admissions.contains(&large) {
        // There is always a small request that would fit.
        while desk.scheduler.stats().waiting < 3 {
            last += 1;
            desk.submit(last, 3, 2);
        }
        desk.step();
        if desk.scheduler.oldest_in_flight().is_some() {
            desk.complete();
        }
        assert!(last < 1000, "the large request starves");
    }
    let ahead = desk.admissions.iter().take_while(|&&request| request != large).count();
    // Some pass it while it waits for pages, and some in its slot, before its first chunk.
    assert_eq!(ahead, 1 + (BYPASSES_MAX + PASSES_MAX) as usize);
}

#[test]
fn cancelling_frees_only_behind_the_fences_of_what_was_submitted() {
    let mut desk = Desk::new(32);
    let cancel = |desk: &mut Desk, request| {
        desk.handle(Event::Cancel { request: RequestId(request) });
        assert_eq!(desk.ending(request), Some(Ending::Cancelled));
    };
    desk.submit(1, 8, 8);
    cancel(&mut desk, 1);
    assert_eq!(desk.free(), (32, 4));

    desk.submit(2, 8, 8);
    desk.step().unwrap();
    cancel(&mut desk, 2);
    assert_eq!(desk.free(), (29, 3), "initialization is in flight");
    desk.complete();
    assert_eq!(desk.free(), (32, 4));

    desk.submit(3, 8, 8);
    desk.run(|desk| desk.tokens(3) == 1);
    desk.step().unwrap();
    desk.step().unwrap();
    cancel(&mut desk, 3);
    desk.complete();
    assert_eq!(desk.free().1, 3, "the second decode is in flight");
    desk.complete();
    assert_eq!(desk.free(), (32, 4));
    assert_eq!(desk.tokens(3), 1, "nothing is told after the end");
}

#[test]
fn the_newest_decoder_makes_room_and_goes_on_later_without_repeats() {
    let mut desk = Desk::new(12);
    desk.submit(1, 8, 24);
    desk.submit(2, 8, 24);
    let operations = desk.run(|_| false);
    assert!(desk.scheduler.stats().preemptions > 0);
    let is_readmission = |operation: &Operation| {
        matches!(operation, Operation::Initialize { output_limit, generated_before }
            if *generated_before > 0 && output_limit + generated_before == 24)
    };
    assert!(operations.iter().any(is_readmission));
    for request in [1, 2] {
        assert_eq!(desk.tokens(request), 24);
        assert_eq!(desk.ending(request), Some(Ending::Finished(Finish::Length)));
    }
    let admissions =
        desk.told[&RequestId(2)].iter().filter(|output| matches!(output, Output::Admitted { .. }));
    assert_eq!(admissions.count(), 1);
}

#[test]
fn a_history_that_the_whole_pool_cannot_hold_ends_as_length() {
    let mut desk = Desk::new(4);
    desk.submit(1, 8, 50);
    desk.run(|_| false);
    assert_eq!(desk.ending(1), Some(Ending::Finished(Finish::Length)));
    assert_eq!(desk.tokens(1), 4 * 4 + 1 - 8, "the last token needs no place");
    assert_eq!(desk.free(), (4, 4));
}

#[test]
fn a_contradicting_completion_changes_nothing() {
    let mut desk = Desk::new(32);
    for request in [1, 2] {
        desk.submit(request, 8, 8);
    }
    desk.run(|desk| desk.tokens(1) >= 1 && desk.tokens(2) >= 1);
    desk.step().unwrap();
    let good = desk.device.complete(Duration::ZERO).unwrap();
    assert_eq!(good.len(), 2);
    let spoil: [fn(&mut Record); 8] = [
        |record| record.epoch = Epoch(99),
        |record| record.slot.0 += 1,
        |record| record.status = Status::Rejected,
        |record| record.status = Status::Inactive,
        |record| record.consumed += 1,
        |record| record.generated += 1,
        |record| record.token = None,
        |record| record.finish = Some(Finish::Length),
    ];
    for spoil in spoil {
        let mut records = good.clone();
        spoil(&mut records[1]);
        let before = format!("{:?}", desk.scheduler);
        let completed = desk.scheduler.handle(Event::Completed { records: &records }, Duration::ZERO);
        assert!(completed.is_err());
        assert_eq!(format!("{:?}", desk.scheduler), before);
    }
    let short = desk.scheduler.handle(Event::Completed { records: &good[..1] }, Duration::ZERO);
    assert!(matches!(short, Err(CompletionError::RecordCount { lanes: 2, records: 1, .. })));
    desk.handle(Event::Completed { records: &good });
    let none = desk.scheduler.handle(Event::Completed { records: &[] }, Duration::ZERO);
    assert_eq!(none, Err(CompletionError::NothingInFlight));
}

#[test]
fn a_shutdown_refuses_new_requests_and_ends_the_running_ones_at_its_deadline() {
    let mut desk = Desk::new(11);
    for request in 1..=3 {
        desk.submit(request, 12, 24);
    }
    desk.run(|desk| desk.tokens(1) == 2);
    desk.handle(Event::Shutdown { drain: Duration::from_secs(1) });
    assert_eq!(desk.ending(3), rejected(Rejection::ShuttingDown));
    desk.submit(4, 8, 8);
    assert_eq!(desk.ending(4), rejected(Rejection::ShuttingDown));
    assert!(desk.step().is_some(), "what runs goes on");
    assert!(desk.scheduler.plan(Duration::from_secs(1)).is_none());
    desk.settle();
    assert_eq!(desk.ending(1), Some(Ending::ShutDown));
    desk.complete();
    assert!(desk.scheduler.is_idle());
    assert_eq!(desk.free(), (11, 4));
}

#[test]
fn a_geometry_that_cannot_be_scheduled_is_refused() {
    let new = |change: fn(&mut Geometry)| {
        let mut geometry = geometry(8, 0);
        change(&mut geometry);
        Scheduler::new(geometry, SchedulerLimits::default()).unwrap_err()
    };
    assert_eq!(new(|geometry| geometry.pages = 0), GeometryError::Missing("pages"));
    assert_eq!(new(|geometry| geometry.prefill.clear()), GeometryError::Missing("prefill"));
    assert_eq!(new(|geometry| geometry.prefill.reverse()), GeometryError::Unordered("prefill"));
    assert_eq!(new(|geometry| geometry.slots = 5), GeometryError::DecodeTooSmall { largest: 4, slots: 5 });
}

#[test]
fn a_short_prompt_passes_a_long_one_but_many_of_them_do_not_starve_it() {
    let mut desk = Desk::new(200);
    desk.submit(1, 60, 1);
    desk.run(|desk| desk.scheduler.stats().prefilled_tokens == 16);
    desk.submit(2, 4, 1);
    desk.run(|desk| desk.tokens(2) == 1);
    assert_eq!(desk.tokens(1), 0);

    let mut last = 2;
    let mut chunks = Vec::new();
    while desk.tokens(1) == 0 {
        while desk.scheduler.stats().waiting + desk.scheduler.stats().running < 4 {
            last += 1;
            desk.submit(last, 4, 1);
        }
        let step = desk.step().unwrap();
        if let Operation::Prefill { .. } = step.operation {
            chunks.push(step.lanes[0].request == RequestId(1));
        }
        desk.complete();
    }
    let waits = chunks.split(|is_oldest| *is_oldest).map(<[bool]>::len);
    assert_eq!(waits.max(), Some(PASSES_MAX as usize), "{chunks:?}");
}

#[test]
fn clients_take_turns() {
    let mut desk = Desk::new(100);
    let ask = |desk: &mut Desk, client, request| {
        desk.submit_for(ClientId(client), request, vec![TokenId(request as u32)], &[], 40);
    };
    // Four run; six of the first client's wait, and two others come late.
    (1..=10).for_each(|request| ask(&mut desk, 0, request));
    desk.run(|desk| desk.admissions.len() == 4);
    ask(&mut desk, 1, 11);
    ask(&mut desk, 1, 12);
    ask(&mut desk, 2, 13);
    desk.run(|_| false);
    assert_eq!(desk.admissions, [1, 2, 3, 4, 11, 13, 5, 12, 6, 7, 8, 9, 10]);
}

#[test]
fn a_client_that_was_served_waits_for_the_next_round() {
    let mut desk = Desk::new(100);
    // They end one by one.
    let ask = |desk: &mut Desk, client, request: u64| {
        desk.submit_for(
            ClientId(client),
            request,
            vec![TokenId(request as u32)],
            &[],
            8 * request as u32 + 10,
        );
    };
    (1..=6).for_each(|request| ask(&mut desk, 0, request));
    desk.run(|desk| desk.admissions.len() == 4);
    ask(&mut desk, 1, 7);
    desk.run(|desk| desk.admissions.len() == 5);
    assert_eq!(desk.admissions.last(), Some(&7));
    // It had its turn in the fourth request's round, so the fifth goes first.
    ask(&mut desk, 1, 8);
    desk.run(|_| false);
    assert_eq!(desk.admissions[5..], [5, 8, 6]);
}
