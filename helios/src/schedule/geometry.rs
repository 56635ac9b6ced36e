//! What the scheduler knows of a device: counts, capacities and what they cost.

/// What a token of a short chunk may cost, beside the cheapest chunk's.
const SHORT_CHUNK_COST_MAX: f64 = 1.25;

/// Rows and pages, capacities and costs; plain numbers that any core has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub page_tokens: u32,
    pub pages: u32,
    /// Rows for checkpoints; without any, nothing is cached and preemption computes again.
    pub snapshots: u32,
    pub slots: u32,
    /// Prompt and output of one request together.
    pub context_tokens_max: u32,
    /// Chunk sizes in tokens, ascending.
    pub prefill: Vec<Capacity>,
    /// Batch sizes in requests, ascending; the last holds every slot.
    pub decode: Vec<Capacity>,
    /// Completion frames: steps whose records are held at one time.
    pub frames: u32,
}

/// A prepared program's size, and what one launch of it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    pub size: u32,
    pub cost_ns: u64,
}

/// Bounds that are policy, not geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerLimits {
    /// Requests that wait for their first admission.
    pub waiting_max: u32,
    /// Steps submitted and not yet complete, at most the geometry's frames.
    pub steps_in_flight_max: u32,
}

impl Default for SchedulerLimits {
    fn default() -> Self {
        Self { waiting_max: 1024, steps_in_flight_max: 2 }
    }
}

/// Why a geometry cannot be scheduled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    #[error("the geometry has no {0}; at least one is needed")]
    Missing(&'static str),
    #[error("the {0} capacities are not ascending from 1; prepare the core again")]
    Unordered(&'static str),
    #[error(
        "the largest decode capacity is {largest} and the core has {slots} slots; prepare the core again"
    )]
    DecodeTooSmall { largest: u32, slots: u32 },
}

impl Geometry {
    /// Pages that `tokens` of history take.
    pub fn pages_for(&self, tokens: u32) -> u32 {
        tokens.div_ceil(self.page_tokens)
    }

    /// The chunk sizes that do not hold up decoders for longer than it pays: up to the smallest one whose tokens cost
    /// hardly more than the cheapest's.
    pub(super) fn short_prefill(&self) -> &[Capacity] {
        let cost = |capacity: &Capacity| capacity.cost_ns as f64 / f64::from(capacity.size);
        let cheapest = self.prefill.iter().map(cost).fold(f64::INFINITY, f64::min);
        let largest =
            self.prefill.iter().position(|capacity| cost(capacity) <= cheapest * SHORT_CHUNK_COST_MAX);
        &self.prefill[..=largest.expect("the cheapest capacity is one of them")]
    }

    pub(super) fn validate(&self) -> Result<(), GeometryError> {
        for (count, what) in [
            (self.page_tokens, "tokens in a page"),
            (self.pages, "pages"),
            (self.slots, "slots"),
            (self.context_tokens_max, "context"),
            (self.frames, "completion frames"),
        ] {
            if count == 0 {
                return Err(GeometryError::Missing(what));
            }
        }
        for (capacities, family) in [(&self.prefill, "prefill"), (&self.decode, "decode")] {
            if capacities.is_empty() {
                return Err(GeometryError::Missing(family));
            }
            let is_ascending = capacities.windows(2).all(|pair| pair[0].size < pair[1].size);
            if capacities[0].size == 0 || !is_ascending {
                return Err(GeometryError::Unordered(family));
            }
        }
        let largest = self.decode.last().map_or(0, |capacity| capacity.size);
        if largest < self.slots {
            return Err(GeometryError::DecodeTooSmall { largest, slots: self.slots });
        }
        Ok(())
    }

    /// The smallest decode capacity that holds `lanes`.
    pub(super) fn decode_capacity(&self, lanes: u32) -> u32 {
        let fitting = self.decode.iter().find(|capacity| capacity.size >= lanes);
        fitting.expect("the largest decode capacity holds every slot").size
    }
}
