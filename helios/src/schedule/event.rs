//! What happens to the scheduler, and what it says to requests.

use std::sync::Arc;
use std::time::Duration;

use crate::cache::{Condition, PrefixName};
use crate::ids::{ClientId, Digest, Epoch, RequestId, SlotId, TokenId, TransferId};

/// What a request starts from.
#[derive(Clone, Debug)]
pub struct Prompt {
    pub tokens: Arc<[TokenId]>,
    /// Where checkpoints are worth keeping, the ends of messages: ascending, within the tokens.
    pub endpoints: Arc<[u32]>,
    /// Tells apart prompts that must never share state, however equal their tokens.
    pub root: Digest,
    /// Inputs beside the tokens, in order of position.
    pub conditions: Arc<[Condition]>,
    /// Whether every sample takes a mask.
    pub is_constrained: bool,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// A request arrived. Its id has not been used before.
    Submit {
        request: RequestId,
        client: ClientId,
        prompt: Prompt,
        /// Clamped to what the context leaves.
        output_tokens_max: u32,
    },
    /// Nobody wants the request any more; unknown and ended requests are ignored.
    Cancel { request: RequestId },
    /// The oldest step in flight is complete; one record for each of its lanes, in order.
    Completed { records: &'a [Record] },
    /// The mask for a constrained request's next sample is there, which follows so many sampled tokens.
    MaskReady { request: RequestId, generated: u32 },
    /// Nothing but the end may follow what a constrained request has sampled: it has all its tokens.
    Complete { request: RequestId },
    /// A tier holds a checkpoint of this name, from before the process started.
    TierHolds { name: PrefixName },
    /// The tiers have named everything from before the process started.
    TiersListed,
    /// No tier holds the checkpoint of this digest any more.
    TierDropped { digest: Digest },
    /// A store or fetch is over.
    Transferred { transfer: TransferId, is_done: bool },
    /// The tiers have ended; what they had not answered has failed.
    TiersStopped,
    /// Admit nothing new, and end what still runs after `drain`.
    Shutdown { drain: Duration },
}

/// What a launch says of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub slot: SlotId,
    pub epoch: Epoch,
    pub status: Status,
    /// Tokens in the slot's state after the launch.
    pub consumed: u32,
    /// Tokens sampled since the slot's initialization, after the launch.
    pub generated: u32,
    pub finish: Option<Finish>,
    pub token: Option<TokenId>,
}

/// What a launch did to a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Nothing, for the request had finished.
    Inactive,
    Live,
    /// Nothing, for the slot held another epoch or consumed count.
    Rejected,
}

/// Why a request has all its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    EndToken,
    Length,
}

/// What a request is to be told: `Admitted` at most once, then `Token`s, then `Ended` exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Its history is being computed, but for what was cached.
    Admitted {
        request: RequestId,
        cached_tokens: u32,
    },
    Token {
        request: RequestId,
        token: TokenId,
        /// Where the completed step's records have what else is known of the token.
        frame: u32,
        lane: u32,
    },
    Ended {
        request: RequestId,
        ending: Ending,
    },
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Finished(Finish),
    Rejected(Rejection),
    Cancelled,
    /// The drain time was over.
    ShutDown,
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    QueueFull {
        waiting: u32,
    },
    /// The prompt or the output limit is empty.
    Empty,
    PromptTooLong {
        prompt_tokens: u32,
        context_tokens_max: u32,
    },
    PoolTooSmall {
        pages: u32,
        pages_max: u32,
    },
    ShuttingDown,
}
