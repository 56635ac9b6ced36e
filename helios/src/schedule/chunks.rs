//! How a prompt is cut into chunks: the cheapest sequence of captured capacities by measured cost.
//!
//! Solved once at construction for every length up to the context, so choosing a chunk is a look-up.

use super::geometry::{Capacity, Geometry};

/// The first chunk of the cheapest way to compute any number of tokens.
#[derive(Clone, Debug)]
pub(super) struct ChunkPlan {
    /// Greatest common divisor of the capacities: lengths within one unit cost the same.
    unit_tokens: u32,
    /// Capacity of the next chunk by remaining units, from 1.
    capacities: Vec<u32>,
}

impl ChunkPlan {
    /// Among ways that cost the same, the one with the least padding wins, then the one with the larger first chunk.
    pub(super) fn new(geometry: &Geometry, prefill: &[Capacity]) -> Self {
        let unit_tokens = prefill.iter().fold(0, |unit, capacity| gcd(unit, capacity.size));
        let units = geometry.context_tokens_max.div_ceil(unit_tokens) as usize;
        // Cost and padded tokens of the best way for each number of units.
        let mut best: Vec<(u64, u64)> = vec![(0, 0)];
        let mut capacities = vec![0];
        for remaining in 1..=units {
            let mut choice = (u64::MAX, u64::MAX);
            let mut size = 0;
            for capacity in prefill {
                let rest = best[remaining.saturating_sub((capacity.size / unit_tokens) as usize)];
                let candidate = (capacity.cost_ns.saturating_add(rest.0), u64::from(capacity.size) + rest.1);
                if candidate <= choice {
                    choice = candidate;
                    size = capacity.size;
                }
            }
            best.push(choice);
            capacities.push(size);
        }
        Self { unit_tokens, capacities }
    }

    /// The capacity of the next chunk when `remaining_tokens`, from 1 to the context, are left.
    pub(super) fn next_capacity(&self, remaining_tokens: u32) -> u32 {
        self.capacities[remaining_tokens.div_ceil(self.unit_tokens) as usize]
    }
}

fn gcd(left: u32, right: u32) -> u32 {
    if right == 0 { left } else { gcd(right, left % right) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::schedule::Capacity;

    fn plan(context_tokens_max: u32, prefill: &[(u32, u64)]) -> ChunkPlan {
        let prefill = prefill.iter().map(|&(size, cost_ns)| Capacity { size, cost_ns }).collect();
        let decode = vec![Capacity { size: 1, cost_ns: 1 }];
        let geometry = Geometry {
            page_tokens: 64,
            pages: 1,
            snapshots: 0,
            slots: 1,
            context_tokens_max,
            prefill,
            decode,
            frames: 2,
        };
        ChunkPlan::new(&geometry, &geometry.prefill)
    }

    fn chunks(plan: &ChunkPlan, mut tokens: u32) -> Vec<u32> {
        let mut chunks = Vec::new();
        while tokens > 0 {
            let capacity = plan.next_capacity(tokens);
            chunks.push(capacity);
            tokens = tokens.saturating_sub(capacity);
        }
        chunks
    }

    #[test]
    fn a_tail_takes_whichever_capacities_cost_less() {
        let dear_padding = plan(512, &[(64, 10), (128, 25)]);
        assert_eq!(chunks(&dear_padding, 70), [64, 64]);
        let dear_launches = plan(512, &[(64, 10), (128, 15)]);
        assert_eq!(chunks(&dear_launches, 70), [128]);
        assert_eq!(chunks(&dear_launches, 64), [64]);
        let equal = plan(512, &[(64, 10), (128, 20)]);
        assert_eq!(chunks(&equal, 70), [128]);
        assert_eq!(chunks(&equal, 180), [128, 64]);
    }

    #[test]
    fn equal_costs_choose_the_least_padding() {
        let unmeasured = plan(512, &[(64, 1), (128, 1), (256, 1)]);
        assert_eq!(chunks(&unmeasured, 70), [128]);
        assert_eq!(chunks(&unmeasured, 300), [256, 64]);
    }

    proptest! {
        /// The naive model tries every sequence of capacities.
        #[test]
        fn no_other_way_is_cheaper(costs in prop::collection::vec(1..40u64, 3), tokens in 1..=320u32) {
            let capacities = [(32, costs[0]), (64, costs[1]), (160, costs[2])];
            fn cheapest(tokens: u32, capacities: &[(u32, u64)]) -> u64 {
                if tokens == 0 {
                    return 0;
                }
                let ways = capacities.iter();
                ways.map(|&(size, cost)| cost + cheapest(tokens.saturating_sub(size), capacities)).min().unwrap()
            }
            let chosen = chunks(&plan(320, &capacities), tokens);
            let cost_of = |size: &u32| capacities.iter().find(|capacity| capacity.0 == *size).unwrap().1;
            prop_assert_eq!(chosen.iter().map(cost_of).sum::<u64>(), cheapest(tokens, &capacities));
        }
    }
}
