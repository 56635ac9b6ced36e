//! The tier thread and the handle that the model thread commands it with.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::access::{Access, Permits};
use super::queue::{Next, Queue};
use super::transfers::Transfers;
use super::{
    DiskOptions, DiskTier, Geometry, MemoryTier, Restore, Store, TierError, TierEvent, TierOptions, TierStats,
};
use crate::device::{Copier, Placement};
use crate::ids::{Digest, TransferId};

/// What the piece of work at hand may take beyond the time that the thread is given to end.
const PIECE_TIMEOUT: Duration = Duration::from_secs(1);

/// How much the thread stands back for those that compute.
const NICENESS: i32 = 10;

/// The handle of the tier thread. Dropping it leaves what is not done yet.
pub struct TierThread {
    queue: Arc<Queue>,
    permits: Permits,
    stats: StatsReader,
    started: Instant,
    thread: Option<JoinHandle<()>>,
}

/// Reads the tiers' counters from any thread.
#[derive(Clone, Debug, Default)]
pub struct StatsReader(Arc<Mutex<TierStats>>);

impl StatsReader {
    /// What the tiers hold and had done after the last piece of work.
    pub fn read(&self) -> TierStats {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, stats: TierStats) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = stats;
    }
}

impl TierThread {
    /// Starts the tiers that `options` ask for; `None` if none is asked for or left. A tier that cannot work is left out and the log
    /// says why; the disk's folder is opened on the thread.
    ///
    /// `notify` is called on the tier thread. It may block for room, but has to return once nobody listens any more.
    ///
    /// # Errors
    /// The system's, when it refuses a thread.
    pub fn start(
        options: TierOptions,
        core: Digest,
        copier: Box<dyn Copier>,
        notify: impl Fn(TierEvent) + Send + 'static,
    ) -> std::io::Result<Option<Self>> {
        let memory = options.memory_bytes.and_then(|bytes| memory_tier(bytes, &*copier));
        if memory.is_none() && options.disk.is_none() {
            return Ok(None);
        }
        let queue = Arc::new(Queue::default());
        let permits = Permits::default();
        let stats = StatsReader::default();
        let started = now();
        let thread = {
            let (queue, permits, stats) = (Arc::clone(&queue), permits.clone(), stats.clone());
            std::thread::Builder::new().name("flare-tiers".to_owned()).spawn(move || {
                let _end = EndOnDrop(&queue);
                // On Linux this is the calling thread's alone.
                if let Err(errno) = rustix::process::nice(NICENESS) {
                    tracing::debug!(%errno, "the tier thread keeps its priority");
                }
                let device = Access::new(copier, permits);
                let geometry = device.geometry();
                let mut transfers = Transfers::new(device, notify);
                transfers.memory = memory;
                transfers.disk = options.disk.and_then(|options| disk_tier(&options, core, geometry));
                transfers.list();
                run(transfers, &queue, &stats, started);
            })?
        };
        Ok(Some(Self { queue, permits, stats, started, thread: Some(thread) }))
    }

    /// Queues a store, or refuses it at once: then the checkpoint is simply not stored.
    pub fn store(&self, store: Store) -> Result<(), TierError> {
        let transfer = store.transfer;
        self.permits.grant(transfer);
        self.queue.store(store).inspect_err(|_| self.permits.revoke(transfer))
    }

    /// Queues a restore, or refuses it at once. Restores overtake stores.
    pub fn restore(&self, restore: Restore) -> Result<(), TierError> {
        let transfer = restore.transfer;
        self.permits.grant(transfer);
        self.queue.restore(restore).inspect_err(|_| self.permits.revoke(transfer))
    }

    /// Takes a transfer's pages and row away from it: once this returns, nothing copies from or to them any more. It waits for the
    /// copy of one page at most, however slow the disk is. The transfer is still answered, as failed unless it was through.
    pub fn abandon(&self, transfer: TransferId) {
        self.permits.revoke(transfer);
    }

    /// A reader of the counters.
    pub fn stats(&self) -> StatsReader {
        self.stats.clone()
    }

    /// Takes no more, does what is queued for up to `timeout`, and ends the thread. Events go on until [`TierEvent::Stopped`].
    ///
    /// A disk that does not answer keeps the thread beyond that time; it is then left to itself, and the device's memory with it.
    pub fn close(mut self, timeout: Duration) {
        self.end(timeout);
    }

    fn end(&mut self, timeout: Duration) {
        let Some(thread) = self.thread.take() else { return };
        self.queue.close(self.started.elapsed() + timeout);
        if !self.queue.wait_for_end(timeout + PIECE_TIMEOUT) {
            tracing::warn!("the tier thread does not end: the disk of the prefix cache does not answer");
        } else if thread.join().is_err() {
            tracing::error!("the tier thread had panicked");
        }
    }
}

impl Drop for TierThread {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

fn run<N: Fn(TierEvent)>(mut transfers: Transfers<N>, queue: &Queue, stats: &StatsReader, started: Instant) {
    loop {
        stats.publish(transfers.stats());
        match queue.next(transfers.is_storing(), || started.elapsed()) {
            Next::Restore(restore) => transfers.restore(&restore),
            Next::Store(store) => transfers.store(store, started.elapsed()),
            Next::Continue => transfers.go_on(started.elapsed()),
            Next::End => return,
        }
    }
}

fn memory_tier(budget_bytes: u64, copier: &dyn Copier) -> Option<MemoryTier> {
    let placement = copier.placement();
    let tier = MemoryTier::new(budget_bytes, Geometry::of(copier), placement);
    match &tier {
        Ok(_) if placement == Placement::Process => tracing::info!(
            budget_bytes,
            "the prefix cache's copies take memory beside --memory, of the same kind as the pages"
        ),
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "the prefix cache has no tier in memory"),
    }
    tier.ok()
}

fn disk_tier(options: &DiskOptions, core: Digest, geometry: Geometry) -> Option<DiskTier> {
    let tier = DiskTier::open(options, core, geometry);
    match &tier {
        Ok(tier) => {
            tracing::info!(checkpoints = tier.checkpoints().count(), "the prefix cache's folder is open")
        }
        Err(error) => tracing::warn!(%error, "the prefix cache has no tier on disk"),
    }
    tier.ok()
}

/// Tells whoever waits that the thread has ended, whatever ended it.
struct EndOnDrop<'a>(&'a Queue);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the thread times its pauses; what it drives takes the time as an argument"
)]
fn now() -> Instant {
    Instant::now()
}
