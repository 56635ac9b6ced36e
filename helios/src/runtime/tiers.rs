//! The model thread's side of the tiers: it carries out the scheduler's orders and brings it the answers.
//!
//! Answers wait in a bounded queue of their own, so that they take no room from requests; a wake-up in the command queue
//! tells an idle model thread that there are some, one at a time. A refused order is an answer too.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use tokio::sync::mpsc::WeakSender;

use super::engine::EngineCommand;
use super::worker::WorkerError;
use crate::cache::PrefixName;
use crate::device::Executor;
use crate::ids::{Digest, RowId, SnapshotId, TransferId};
use crate::schedule::{Event, TransferOrder};
use crate::tiers::{Restore, StatsReader, Store, TierEvent, TierOptions, TierThread};

/// Answers that the tier thread may be ahead.
const EVENTS_MAX: usize = 256;
/// How long stores may take that are queued when the engine ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct TierLink {
    thread: TierThread,
    events: Receiver<TierEvent>,
    /// Whether a wake-up is on its way.
    is_woken: Arc<AtomicBool>,
    /// Row of snapshot 0.
    snapshot_row: RowId,
    refused: VecDeque<TransferId>,
}

impl TierLink {
    /// `None` when no tier is asked for, or none of them can work.
    pub(super) fn start(
        options: TierOptions,
        core: Digest,
        snapshot_row: RowId,
        executor: &dyn Executor,
        waker: WeakSender<EngineCommand>,
    ) -> Result<Option<Self>, WorkerError> {
        if options == TierOptions::default() {
            return Ok(None);
        }
        let (sender, events) = sync_channel(EVENTS_MAX);
        let is_woken = Arc::new(AtomicBool::new(false));
        let notify = notifier(sender, Arc::clone(&is_woken), waker);
        let thread = TierThread::start(options, core, executor.copier()?, notify)?;
        Ok(thread.map(|thread| Self { thread, events, is_woken, snapshot_row, refused: VecDeque::new() }))
    }

    pub(super) fn carry_out(&mut self, order: TransferOrder) {
        let row = |snapshot: SnapshotId| RowId(self.snapshot_row.0 + snapshot.0);
        let (transfer, outcome) = match order {
            TransferOrder::Store { transfer, name, snapshot, pages } => {
                let PrefixName { consumed, block, digest: key } = name;
                let store = Store { transfer, key, block, consumed, pages, row: row(snapshot) };
                (transfer, self.thread.store(store))
            }
            TransferOrder::Fetch { transfer, name, snapshot, pages } => {
                let restore = Restore { transfer, key: name.digest, pages, row: row(snapshot) };
                (transfer, self.thread.restore(restore))
            }
            TransferOrder::Abandon { transfer } => return self.thread.abandon(transfer),
        };
        if let Err(error) = outcome {
            tracing::debug!(%error, "a transfer was not taken");
            self.refused.push_back(transfer);
        }
    }

    /// The next answer, if there is one.
    pub(super) fn next_event(&mut self) -> Option<Event<'static>> {
        if let Some(transfer) = self.refused.pop_front() {
            return Some(Event::Transferred { transfer, is_done: false });
        }
        // Cleared before the look, so that an answer after it wakes again.
        self.is_woken.store(false, Ordering::Release);
        self.events.try_recv().ok().map(event_of)
    }

    pub(super) fn stats(&self) -> StatsReader {
        self.thread.stats()
    }

    /// Lets the tiers finish what is queued, within a bound. Nothing may use the device meanwhile.
    pub(super) fn close(self) {
        // Nobody reads answers any more, so the thread must not wait for room for them.
        drop(self.events);
        self.thread.close(CLOSE_TIMEOUT);
    }
}

fn notifier(
    sender: SyncSender<TierEvent>,
    is_woken: Arc<AtomicBool>,
    waker: WeakSender<EngineCommand>,
) -> impl Fn(TierEvent) + Send {
    move |event| {
        if sender.send(event).is_err() || is_woken.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(commands) = waker.upgrade()
            && commands.try_send(EngineCommand::Wake).is_err()
        {
            tracing::trace!("the command queue is full, so the model thread is awake");
        }
    }
}

fn event_of(event: TierEvent) -> Event<'static> {
    match event {
        TierEvent::Listed(checkpoint) => {
            let (consumed, block, digest) = (checkpoint.consumed, checkpoint.block, checkpoint.key);
            Event::TierHolds { name: PrefixName { consumed, block, digest } }
        }
        TierEvent::AllListed => Event::TiersListed,
        TierEvent::Stored { transfer, outcome } | TierEvent::Restored { transfer, outcome } => {
            if let Err(error) = &outcome {
                tracing::debug!(%error, "a transfer failed");
            }
            Event::Transferred { transfer, is_done: outcome.is_ok() }
        }
        TierEvent::Dropped { key } => Event::TierDropped { digest: key },
        TierEvent::Stopped => Event::TiersStopped,
    }
}
