//! How long things took and how large they were, as distributions that anyone may read at any time.
//!
//! The model thread observes while steps are in flight, so an observation takes no lock and no memory. A histogram is the
//! only place where its events are counted: what [`super::engine::EngineStats`] counts has no histogram's count beside it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::schedule::{Operation, Step};

/// What a request may wait or run: a millisecond to ten minutes.
const REQUEST_TIMES: &[u64] = &nanoseconds([
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    60_000_000,
    120_000_000,
    300_000_000,
    600_000_000,
]);

/// Between tokens, and of steps: half a millisecond to a minute, finer where a reader sees the difference.
const STEP_TIMES: &[u64] = &nanoseconds([
    500, 1_000, 1_500, 2_000, 3_000, 5_000, 7_500, 10_000, 15_000, 20_000, 30_000, 50_000, 75_000, 100_000,
    150_000, 200_000, 300_000, 500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
]);

const TOKENS: &[u64] =
    &[0, 1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144];

const LANES: &[u64] = &[1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256];

const fn nanoseconds<const N: usize>(microseconds: [u64; N]) -> [u64; N] {
    let mut times = microseconds;
    let mut index = 0;
    while index < N {
        times[index] *= 1000;
        index += 1;
    }
    times
}

/// What the model thread observes. A request counts from its admission on, and once in each distribution.
#[derive(Debug)]
pub struct EngineHistograms {
    /// From submission to admission.
    pub queue_time: Histogram,
    /// From submission to the first token.
    pub time_to_first_token: Histogram,
    /// Between two tokens of a request, whatever it waited for.
    pub inter_token_time: Histogram,
    /// From submission to the end, whichever end that is.
    pub request_duration: Histogram,
    pub prompt_tokens: Histogram,
    /// Prompt tokens that came from the cache at admission.
    pub cached_tokens: Histogram,
    pub generated_tokens: Histogram,
    pub step_durations: StepDurations,
    /// Requests in a decode step.
    pub decode_lanes: Histogram,
}

impl Default for EngineHistograms {
    fn default() -> Self {
        Self {
            queue_time: Histogram::of_seconds(REQUEST_TIMES),
            time_to_first_token: Histogram::of_seconds(REQUEST_TIMES),
            inter_token_time: Histogram::of_seconds(STEP_TIMES),
            request_duration: Histogram::of_seconds(REQUEST_TIMES),
            prompt_tokens: Histogram::of_counts(TOKENS),
            cached_tokens: Histogram::of_counts(TOKENS),
            generated_tokens: Histogram::of_counts(TOKENS),
            step_durations: StepDurations::default(),
            decode_lanes: Histogram::of_counts(LANES),
        }
    }
}

impl EngineHistograms {
    pub(super) fn step_completed(&self, step: &Step, duration: Duration) {
        self.step_durations.of(step.operation).observe_time(duration);
        if let Operation::Decode { .. } = step.operation {
            self.decode_lanes.observe(step.lanes.len() as u64);
        }
    }
}

/// How long a step kept the device, by operation.
#[derive(Debug)]
pub struct StepDurations {
    initialize: Histogram,
    restore: Histogram,
    prefill: Histogram,
    resume: Histogram,
    decode: Histogram,
    snapshot: Histogram,
}

impl Default for StepDurations {
    fn default() -> Self {
        let histogram = || Histogram::of_seconds(STEP_TIMES);
        Self {
            initialize: histogram(),
            restore: histogram(),
            prefill: histogram(),
            resume: histogram(),
            decode: histogram(),
            snapshot: histogram(),
        }
    }
}

impl StepDurations {
    /// Each operation's name and histogram.
    pub fn by_operation(&self) -> [(&'static str, &Histogram); 6] {
        [
            ("initialize", &self.initialize),
            ("restore", &self.restore),
            ("prefill", &self.prefill),
            ("resume", &self.resume),
            ("decode", &self.decode),
            ("snapshot", &self.snapshot),
        ]
    }

    fn of(&self, operation: Operation) -> &Histogram {
        match operation {
            Operation::Initialize { .. } => &self.initialize,
            Operation::Restore(_) => &self.restore,
            Operation::Prefill { .. } => &self.prefill,
            Operation::Resume => &self.resume,
            Operation::Decode { .. } => &self.decode,
            Operation::Snapshot(_) => &self.snapshot,
        }
    }
}

/// A distribution over fixed buckets, in whole nanoseconds or counts.
#[derive(Debug)]
pub struct Histogram {
    /// The largest value of each bucket, ascending; one more bucket holds what is larger.
    bounds: &'static [u64],
    /// How many of these readers see as one.
    unit: f64,
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// What a [`Histogram`] held when it was read, in seconds or counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    pub count: u64,
    pub sum: f64,
    /// The largest value of each bucket, infinity at last, and how many values are in it and in none before.
    pub buckets: Vec<(f64, u64)>,
}

impl Histogram {
    fn of_seconds(bounds: &'static [u64]) -> Self {
        Self::new(bounds, 1e9)
    }

    fn of_counts(bounds: &'static [u64]) -> Self {
        Self::new(bounds, 1.0)
    }

    fn new(bounds: &'static [u64], unit: f64) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, unit, counts, sum: AtomicU64::new(0) }
    }

    pub(super) fn observe(&self, value: u64) {
        let bucket = self.bounds.partition_point(|&bound| bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    pub(super) fn observe_time(&self, time: Duration) {
        // What does not fit is half a millennium.
        self.observe(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// The count is what the buckets add up to, also while the model thread observes; the sum may be an event ahead or behind.
    pub fn read(&self) -> Distribution {
        let bounds = self.bounds.iter().map(|&bound| bound as f64 / self.unit).chain([f64::INFINITY]);
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        Distribution {
            count: buckets.iter().map(|bucket| bucket.1).sum(),
            sum: self.sum.load(Ordering::Relaxed) as f64 / self.unit,
            buckets,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_the_first_bucket_that_holds_it() {
        let histogram = Histogram::of_counts(&[0, 4, 16]);
        for value in [0, 1, 4, 5, 16, 17, 1000] {
            histogram.observe(value);
        }
        let buckets = vec![(0.0, 1), (4.0, 2), (16.0, 2), (f64::INFINITY, 2)];
        assert_eq!(histogram.read(), Distribution { count: 7, sum: 1043.0, buckets });
    }

    #[test]
    fn times_are_read_in_seconds() {
        let histogram = Histogram::of_seconds(REQUEST_TIMES);
        histogram.observe_time(Duration::from_micros(1500));
        histogram.observe_time(Duration::from_secs(3600));
        let read = histogram.read();
        assert_eq!((read.count, read.sum), (2, 3600.0015));
        assert_eq!((read.buckets[0], read.buckets[1]), ((0.001, 0), (0.002, 1)));
        assert_eq!(read.buckets.last(), Some(&(f64::INFINITY, 1)));
    }

    #[test]
    fn bounds_ascend() {
        for bounds in [REQUEST_TIMES, STEP_TIMES, TOKENS, LANES] {
            assert!(bounds.is_sorted_by(|one, next| one < next), "{bounds:?}");
        }
    }
}
