//! Masks for constrained requests, made beside the model thread.
//!
//! A request's grammar travels: to a worker with the token that was sampled, and back with the mask for the next one. So
//! nothing is shared and nobody waits for a lock on it. A request has one mask under way at most, which bounds both queues.
//!
//! Where a request is alone, the model thread has nothing else to do than to wait for its mask. Then it makes the mask itself,
//! and late: once the step that needs it has begun, whose sample alone waits for it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::grammar::{Constraint, GrammarError, GrammarSlot, MaskState};
use crate::ids::{RequestId, TokenId};

/// Requests of one batch whose masks are made at the same time.
const WORKERS: usize = 2;

struct Job {
    request: RequestId,
    /// Tokens that the mask follows.
    generated: u32,
    slot: GrammarSlot,
    /// The last of them; none before the first.
    token: Option<TokenId>,
}

impl Job {
    fn done(self) -> Answer {
        let Self { request, generated, mut slot, token } = self;
        let outcome = match token {
            None => slot.start(),
            Some(token) => slot.advance(token),
        };
        Answer { request, generated, slot, outcome }
    }
}

struct Answer {
    request: RequestId,
    generated: u32,
    slot: GrammarSlot,
    outcome: Result<MaskState, GrammarError>,
}

/// Who makes a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Maker {
    Worker,
    /// The caller, once it has begun the step that takes the mask.
    Caller,
}

/// A constrained request between two masks.
struct Lane {
    generated: u32,
    /// Away while its mask is being made.
    slot: Option<GrammarSlot>,
    /// The token that a late mask follows.
    late: Option<TokenId>,
}

/// A mask that has been made, or why it could not.
pub(super) struct Made {
    pub(super) request: RequestId,
    pub(super) generated: u32,
    pub(super) outcome: Result<MaskState, GrammarError>,
}

pub(super) struct MaskMaker {
    jobs: SyncSender<Job>,
    answers: Receiver<Answer>,
    /// What callers will make and nobody has been told yet.
    late: VecDeque<Made>,
    lanes: BTreeMap<RequestId, Lane>,
}

impl MaskMaker {
    /// Starts the workers; they end when the maker is dropped.
    pub(super) fn start(requests_max: u32) -> std::io::Result<Self> {
        let (jobs, queue) = sync_channel(requests_max as usize);
        let (done, answers) = sync_channel(requests_max as usize);
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..WORKERS {
            let (queue, done) = (Arc::clone(&queue), done.clone());
            std::thread::Builder::new().name("flare-masks".into()).spawn(move || work(&queue, &done))?;
        }
        Ok(Self { jobs, answers, late: VecDeque::new(), lanes: BTreeMap::new() })
    }

    /// Has a request's first mask made.
    pub(super) fn add(&mut self, request: RequestId, constraint: Constraint) {
        let slot = Some(GrammarSlot::new(constraint));
        self.lanes.insert(request, Lane { generated: 0, slot, late: None });
        self.make(request, None);
    }

    /// Has the mask behind a sampled token made. Requests without a constraint are not known here.
    pub(super) fn sampled(&mut self, request: RequestId, token: TokenId, maker: Maker) {
        if let Some(lane) = self.lanes.get_mut(&request) {
            lane.generated += 1;
            match maker {
                Maker::Worker => self.make(request, Some(token)),
                Maker::Caller => {
                    lane.late = Some(token);
                    let (generated, outcome) = (lane.generated, Ok(MaskState::Open));
                    self.late.push_back(Made { request, generated, outcome });
                }
            }
        }
    }

    /// Whether a request's mask is still to be made by the caller.
    pub(super) fn is_late(&self, request: RequestId) -> bool {
        self.lanes.get(&request).is_some_and(|lane| lane.late.is_some())
    }

    /// Makes a late mask. Where that fails, what is sampled under it means nothing.
    pub(super) fn make_late(&mut self, request: RequestId) -> Option<Made> {
        let lane = self.lanes.get_mut(&request)?;
        let token = lane.late.take()?;
        let slot = lane.slot.as_mut().expect("a token is sampled under a mask that was made");
        Some(Made { request, generated: lane.generated, outcome: slot.advance(token) })
    }

    /// Forgets a request that has ended.
    pub(super) fn remove(&mut self, request: RequestId) {
        self.lanes.remove(&request);
    }

    /// The mask of a request whose mask was said to be made.
    pub(super) fn mask(&self, request: RequestId) -> &[u32] {
        let lane = self.lanes.get(&request).filter(|lane| lane.late.is_none());
        lane.and_then(|lane| lane.slot.as_ref())
            .expect("the scheduler plans a constrained lane once its mask is made")
            .mask()
    }

    /// The next mask that has been made, or that the caller will make by the time it is needed.
    pub(super) fn made(&mut self) -> Option<Made> {
        if let Some(made) = self.late.pop_front() {
            return Some(made);
        }
        match self.answers.try_recv() {
            Ok(answer) => Some(self.take(answer)),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => None,
        }
    }

    /// Waits for the next mask, but not for long.
    pub(super) fn wait(&mut self, timeout: Duration) -> Option<Made> {
        if let Some(made) = self.late.pop_front() {
            return Some(made);
        }
        self.answers.recv_timeout(timeout).ok().map(|answer| self.take(answer))
    }

    fn take(&mut self, answer: Answer) -> Made {
        let Answer { request, generated, slot, outcome } = answer;
        if let Some(lane) = self.lanes.get_mut(&request) {
            lane.slot = Some(slot);
        }
        Made { request, generated, outcome }
    }

    fn make(&mut self, request: RequestId, token: Option<TokenId>) {
        let lane = self.lanes.get_mut(&request).expect("the caller has just seen the lane");
        let slot = lane.slot.take().expect("a token is sampled under a mask that was made");
        let job = Job { request, generated: lane.generated, slot, token };
        assert!(self.jobs.try_send(job).is_ok(), "the queue holds one job of every request");
    }
}

fn work(queue: &Mutex<Receiver<Job>>, done: &SyncSender<Answer>) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        if done.send(job.done()).is_err() {
            return;
        }
    }
}
