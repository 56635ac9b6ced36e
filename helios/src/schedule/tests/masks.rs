//! Constrained requests among others.

use super::*;

impl Desk {
    fn submit_constrained(&mut self, request: u64, output_tokens_max: u32) {
        let prompt = Prompt {
            tokens: (1..=4).map(TokenId).collect(),
            endpoints: Arc::default(),
            root: Digest([request as u8; 32]),
            conditions: Arc::default(),
            is_constrained: true,
        };
        self.handle(Event::Submit {
            request: RequestId(request),
            client: ClientId(0),
            prompt,
            output_tokens_max,
        });
    }

    fn mask(&mut self, request: u64, generated: u32) {
        self.handle(Event::MaskReady { request: RequestId(request), generated });
    }
}

#[test]
fn a_constrained_request_waits_for_the_mask_of_its_next_sample() {
    let mut desk = Desk::new(32);
    desk.submit_constrained(1, 5);
    assert_eq!((desk.step(), desk.scheduler.awaits_masks()), (None, true), "it is not admitted without one");
    desk.mask(1, 0);
    assert!(matches!(desk.step().unwrap().operation, Operation::Initialize { .. }));
    desk.complete();
    assert!(desk.step().unwrap().lanes[0].is_masked);
    desk.complete();
    assert_eq!(desk.tokens(1), 1);
    assert_eq!((desk.step(), desk.scheduler.awaits_masks()), (None, true));
    desk.mask(1, 0);
    assert_eq!(desk.step(), None, "that one is for an earlier sample");
    desk.mask(1, 1);
    assert!(desk.step().unwrap().lanes[0].is_masked);
    assert_eq!((desk.step(), desk.scheduler.awaits_masks()), (None, false), "one step is in flight");
    desk.complete();
    desk.mask(1, 2);
    assert!(desk.step().is_some());
}

#[test]
fn others_hold_back_for_a_mask_but_not_for_long() {
    let mut desk = Desk::new(32);
    desk.submit(1, 4, 30);
    desk.submit_constrained(2, 20);
    desk.mask(2, 0);
    desk.run(|desk| desk.tokens(1) >= 1 && desk.tokens(2) == 1);
    desk.mask(2, 1);
    let step = desk.step().unwrap();
    assert_eq!(step.lanes.iter().map(|lane| lane.is_masked).collect::<Vec<_>>(), [false, true]);
    assert_eq!(desk.step(), None, "nothing follows a constrained lane before it is complete");
    desk.complete();
    assert_eq!(desk.step(), None, "the mask may come at once");
    let patience = desk.scheduler.geometry.mask_patience();
    assert!(patience > Duration::ZERO);
    let step = desk.scheduler.plan(patience).cloned().unwrap();
    assert_eq!(step.lanes.len(), 1, "it did not");
    desk.device.submit(&step, Duration::ZERO);
    desk.complete();
    desk.mask(2, 2);
    assert_eq!(desk.step().unwrap().lanes.len(), 2);
}

#[test]
fn a_complete_answer_ends_its_request_wherever_it_is() {
    let mut desk = Desk::new(32);
    desk.submit_constrained(1, 9);
    desk.mask(1, 0);
    desk.run(|desk| desk.tokens(1) == 1);
    desk.handle(Event::Complete { request: RequestId(1) });
    desk.handle(Event::Complete { request: RequestId(1) });
    desk.submit_constrained(2, 9);
    desk.handle(Event::Complete { request: RequestId(2) });
    for request in [1, 2] {
        assert_eq!(desk.ending(request), Some(Ending::Finished(Finish::EndToken)));
    }
    desk.run(|desk| desk.scheduler.is_idle());
}
