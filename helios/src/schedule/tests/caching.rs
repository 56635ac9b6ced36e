//! What is captured, found and restored, and what gives way.

use super::*;
use crate::cache::PrefixName;

fn tokens(count: u32) -> Vec<TokenId> {
    (1..=count).map(TokenId).collect()
}

impl Desk {
    /// Cached tokens that a request was admitted with.
    fn cached(&self, request: u64) -> Option<u32> {
        self.told.get(&RequestId(request))?.iter().find_map(|output| match output {
            Output::Admitted { cached_tokens, .. } => Some(*cached_tokens),
            _ => None,
        })
    }

    /// What a request was told, behind its prompt.
    fn history(&self, prompt: &[TokenId], request: u64) -> Vec<TokenId> {
        let told = self.told[&RequestId(request)].iter();
        let sampled = told.filter_map(|output| match output {
            Output::Token { token, .. } => Some(*token),
            _ => None,
        });
        prompt.iter().copied().chain(sampled).collect()
    }

    /// Serves one request alone and gives its operations.
    fn serve(&mut self, request: u64, prompt: &[TokenId], endpoints: &[u32], output: u32) -> Vec<Operation> {
        self.submit_tokens(request, prompt.to_vec(), endpoints, output);
        self.run(|_| false)
    }
}

fn computed(operations: &[Operation]) -> Vec<(u32, bool)> {
    let chunks = operations.iter().filter_map(|operation| match operation {
        Operation::Prefill { consumed, sample, .. } => Some((*consumed, *sample)),
        _ => None,
    });
    chunks.collect()
}

fn captured(operations: &[Operation]) -> Vec<u32> {
    let captures = operations.iter().filter_map(|operation| match operation {
        Operation::Snapshot(copy) => Some(copy.consumed),
        _ => None,
    });
    captures.collect()
}

#[test]
fn message_ends_the_prompt_and_the_end_are_captured_exactly() {
    let mut desk = Desk::with_snapshots(40, 32);
    let operations = desk.serve(1, &tokens(41), &[3, 13, 15, 30], 6);
    // 3 and 15 are too close behind other endpoints; the last token is never consumed.
    assert_eq!(captured(&operations), [13, 30, 41, 46]);
    assert_eq!(computed(&operations), [(0, false), (13, false), (29, false), (30, true)]);
}

#[test]
fn an_appended_turn_computes_only_what_is_new() {
    let mut desk = Desk::with_snapshots(40, 32);
    desk.serve(1, &tokens(18), &[], 5);
    let mut prompt = desk.history(&tokens(18), 1);
    prompt.extend(tokens(7));
    let operations = desk.serve(2, &prompt, &[], 3);
    assert_eq!(desk.cached(2), Some(22), "all that the first request had consumed");
    let Operation::Restore(copy) = operations[1] else { panic!("{operations:?}") };
    assert_eq!((copy.consumed, copy.partial_page.is_some()), (22, true));
    assert_eq!(computed(&operations), [(22, true)]);
    assert_eq!(desk.scheduler.stats().prefilled_tokens, 18 + 8);
}

#[test]
fn a_whole_prompt_that_is_cached_is_only_sampled_from() {
    let mut desk = Desk::with_snapshots(40, 32);
    desk.serve(1, &tokens(16), &[], 4);
    let operations = desk.serve(2, &tokens(16), &[], 4);
    assert_eq!(desk.cached(2), Some(16));
    assert!(computed(&operations).is_empty());
    assert_eq!(operations[2], Operation::Resume);
    assert_eq!(desk.history(&[], 1), desk.history(&[], 2));
}

#[test]
fn branches_share_pages_and_write_to_none_of_them() {
    let mut desk = Desk::with_snapshots(40, 32);
    desk.serve(1, &tokens(24), &[], 2);
    let before = desk.free().0;
    for request in [2, 3] {
        let mut prompt = tokens(24);
        prompt.extend([TokenId(90 + request as u32); 4]);
        desk.submit_tokens(request, prompt, &[], 9);
    }
    desk.run(|desk| desk.tokens(2) == 1 && desk.tokens(3) == 1);
    assert_eq!((desk.cached(2), desk.cached(3)), (Some(24), Some(24)));
    assert!(before - desk.free().0 <= 2 * 4, "only suffixes take pages");
    desk.run(|_| false);
}

#[test]
fn requests_that_arrive_together_compute_what_they_share_once() {
    let mut desk = Desk::with_snapshots(64, 32);
    for request in 1..=4 {
        desk.submit_tokens(request, tokens(40), &[], 3);
    }
    desk.run(|_| false);
    let cached: Vec<_> = (1..=4).map(|request| desk.cached(request)).collect();
    assert_eq!(cached, [Some(0), Some(40), Some(40), Some(40)]);
    assert_eq!(desk.scheduler.stats().prefilled_tokens, 40);
}

#[test]
fn another_root_shares_nothing() {
    let mut desk = Desk::with_snapshots(40, 32);
    desk.serve(1, &tokens(16), &[], 2);
    let prompt = Prompt {
        tokens: tokens(16).into(),
        endpoints: Arc::default(),
        root: Digest([1; 32]),
        conditions: Arc::default(),
        is_constrained: false,
    };
    desk.handle(Event::Submit { request: RequestId(2), client: ClientId(0), prompt, output_tokens_max: 2 });
    desk.run(|_| false);
    assert_eq!(desk.cached(2), Some(0));
}

#[test]
fn what_a_cancelled_request_has_computed_is_kept() {
    let mut desk = Desk::with_snapshots(40, 32);
    desk.submit(1, 40, 8);
    desk.run(|desk| desk.scheduler.stats().prefilled_tokens == 16);
    desk.handle(Event::Cancel { request: RequestId(1) });
    assert_eq!(desk.ending(1), Some(Ending::Cancelled), "it is told at once");
    desk.run(|_| false);
    let operations = desk.serve(2, &tokens(40), &[], 8);
    assert_eq!((desk.cached(2), computed(&operations)[0].0), (Some(16), 16));
}

#[test]
fn a_preempted_request_goes_on_from_its_checkpoint() {
    let mut desk = Desk::with_snapshots(11, 8);
    desk.submit(1, 8, 24);
    desk.submit(2, 8, 26);
    let operations = desk.run(|desk| desk.tokens(2) == 26);
    assert!(desk.scheduler.stats().preemptions > 0);
    let restores = operations.iter().filter(|operation| matches!(operation, Operation::Restore(_)));
    assert!(restores.count() > 0);
    assert_eq!(desk.tokens(1), 24);
}

#[test]
fn unused_checkpoints_give_way_to_requests() {
    let mut desk = Desk::with_snapshots(12, 8);
    desk.serve(1, &tokens(40), &[], 2);
    assert_eq!(desk.free().0, 2);
    let other: Vec<TokenId> = (100..140).map(TokenId).collect();
    desk.serve(2, &other, &[], 2);
    assert_eq!(desk.ending(2), Some(Ending::Finished(Finish::Length)));
    assert!(desk.scheduler.stats().cache.evicted_for_pages > 0);
    assert_eq!(desk.cached(2), Some(0));
}

#[test]
fn five_agents_on_four_slots_keep_their_histories() {
    let mut desk = Desk::with_snapshots(200, 32);
    let mut histories: Vec<Vec<TokenId>> = (0..5).map(|agent| vec![TokenId(1000 + agent); 12]).collect();
    let mut request = 0;
    for turn in 0..6 {
        let first = request + 1;
        for history in &histories {
            request += 1;
            desk.submit_tokens(request, history.clone(), &[], 3);
        }
        desk.run(|_| false);
        for (history, request) in histories.iter_mut().zip(first..) {
            let expected = if turn == 0 { 0 } else { history.len() as u32 - 5 };
            assert_eq!(desk.cached(request), Some(expected), "turn {turn}, request {request}");
            *history = desk.history(history, request);
            history.extend([TokenId(7); 4]);
        }
    }
}

/// The ticket that was ordered last.
fn fetch(desk: &mut Desk) -> Option<crate::ids::TransferId> {
    desk.scheduler.drain_orders().find_map(|order| match order {
        TransferOrder::Fetch { transfer, .. } => Some(transfer),
        _ => None,
    })
}

/// What the tiers of another desk were told to store for a prompt, the longest last.
fn stores(prompt: &[TokenId]) -> Vec<PrefixName> {
    let mut desk = Desk::with_snapshots(40, 8);
    desk.scheduler.use_tiers(false, Duration::ZERO);
    desk.serve(1, prompt, &[], 2);
    let orders = desk.scheduler.drain_orders().map(|order| {
        let TransferOrder::Store { name, pages, .. } = order else { panic!("{order:?}") };
        assert_eq!(pages.len() as u32, name.consumed / 4);
        name
    });
    orders.collect()
}

/// A desk whose tiers hold what another has stored.
fn with_tier(prompt: &[TokenId]) -> Desk {
    let mut desk = Desk::with_snapshots(40, 8);
    desk.scheduler.use_tiers(false, Duration::ZERO);
    for name in stores(prompt) {
        desk.handle(Event::TierHolds { name });
    }
    desk
}

#[test]
fn requests_join_a_ticket_and_leaving_harms_no_other() {
    let mut desk = with_tier(&tokens(30));
    for request in 1..=3 {
        desk.submit_tokens(request, tokens(30), &[], 2);
    }
    assert_eq!(desk.step(), None, "they wait");
    let ticket = fetch(&mut desk).unwrap();
    assert_eq!(desk.scheduler.stats().transfers.joined, 2);
    desk.handle(Event::Cancel { request: RequestId(1) });
    assert_eq!(desk.step(), None);
    assert_eq!(fetch(&mut desk), None, "one fetch serves all");
    desk.handle(Event::Transferred { transfer: ticket, is_done: true });
    desk.step().unwrap();
    assert_eq!(desk.cached(2), Some(30));
}

#[test]
fn a_fetch_that_fails_or_takes_too_long_is_computed_instead() {
    for takes_too_long in [false, true] {
        let mut desk = with_tier(&tokens(30));
        desk.submit_tokens(1, tokens(30), &[], 2);
        assert_eq!(desk.step(), None);
        let ticket = fetch(&mut desk).unwrap();
        if takes_too_long {
            assert!(desk.scheduler.plan(Duration::from_secs(11)).is_some());
            let orders: Vec<_> = desk.scheduler.drain_orders().collect();
            assert_eq!(orders, [TransferOrder::Abandon { transfer: ticket }]);
            desk.settle();
        }
        desk.handle(Event::Transferred { transfer: ticket, is_done: takes_too_long });
        if !takes_too_long {
            desk.step().unwrap();
        }
        assert_eq!(desk.cached(1), Some(0));
        assert_eq!(desk.scheduler.stats().transfers.fetches_failed, 1);
    }
}

#[test]
fn requests_wait_until_the_tiers_have_said_what_they_hold_but_not_for_ever() {
    for takes_too_long in [false, true] {
        let name = *stores(&tokens(30)).first().unwrap();
        let mut desk = Desk::with_snapshots(40, 8);
        desk.scheduler.use_tiers(true, Duration::ZERO);
        desk.submit_tokens(1, tokens(30), &[], 2);
        assert_eq!(desk.step(), None);
        assert!(desk.scheduler.awaits_tiers());
        if takes_too_long {
            assert!(desk.scheduler.plan(Duration::from_secs(11)).is_some());
            assert_eq!(fetch(&mut desk), None);
        } else {
            desk.handle(Event::TierHolds { name });
            assert_eq!(desk.step(), None, "there may be a longer one to come");
            desk.handle(Event::TiersListed);
            assert_eq!(desk.step(), None);
            assert!(fetch(&mut desk).is_some());
        }
    }
}

#[test]
fn a_short_gain_is_not_waited_for() {
    let mut desk = with_tier(&tokens(6));
    desk.submit_tokens(1, tokens(6), &[], 2);
    assert!(desk.step().is_some());
    assert_eq!(fetch(&mut desk), None);
}

#[test]
fn a_store_gives_way_to_requests() {
    let mut desk = Desk::with_snapshots(12, 2);
    desk.scheduler.use_tiers(false, Duration::ZERO);
    desk.serve(1, &tokens(40), &[], 1);
    let store = desk.scheduler.drain_orders().find_map(|order| match order {
        TransferOrder::Store { transfer, .. } => Some(transfer),
        _ => None,
    });
    desk.submit_tokens(2, (100..140).map(TokenId).collect(), &[], 1);
    desk.step().unwrap();
    let orders: Vec<_> = desk.scheduler.drain_orders().collect();
    assert_eq!(orders, [TransferOrder::Abandon { transfer: store.unwrap() }]);
}
