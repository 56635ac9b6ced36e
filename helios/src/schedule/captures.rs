//! Which positions of a prompt are worth a checkpoint.
//!
//! A request may take so many snapshots of its own that all slots together never ask for more than there are. One is for where
//! it ends, one for where its prompt ends, and the rest go to message ends, which interrupt prefill and so cost a launch each.

use std::ops::Range;

use super::geometry::Geometry;

/// Snapshots that one request takes at most.
const CAPTURES_MAX: u32 = 8;

/// Where to interrupt the prefill of `computed`, ascending; the end of the prompt may be one.
pub(super) fn select(
    geometry: &Geometry,
    endpoints: &[u32],
    computed: Range<u32>,
    output_tokens_max: u32,
) -> Vec<u32> {
    let mut budget = budget(geometry);
    // The terminal checkpoint; a single output token is never consumed, so that it shares the prompt's.
    budget = budget.saturating_sub(1);
    let prompt = (output_tokens_max > 1 && budget > 0 && !computed.is_empty()).then_some(computed.end);
    budget -= u32::from(prompt.is_some());
    let mut selected = spread(&eligible(geometry, endpoints, &computed), &computed, budget as usize);
    selected.extend(prompt);
    selected
}

fn budget(geometry: &Geometry) -> u32 {
    (geometry.snapshots / geometry.slots).clamp(1, CAPTURES_MAX).min(geometry.snapshots)
}

/// Message ends inside `computed` that are worth an interruption. One closer behind another endpoint than the smallest
/// chunk saves nothing: a prompt that goes on from there takes a launch in either case.
fn eligible(geometry: &Geometry, endpoints: &[u32], computed: &Range<u32>) -> Vec<u32> {
    let interval_tokens_min = geometry.prefill[0].size;
    let mut last = computed.start;
    let mut eligible = Vec::new();
    for &endpoint in endpoints.iter().filter(|&&endpoint| endpoint < computed.end) {
        if endpoint >= last.saturating_add(interval_tokens_min) {
            eligible.push(endpoint);
            last = endpoint;
        }
    }
    eligible
}

/// The message ends nearest to targets at equal intervals, where there are more than `count`; the earlier on ties.
fn spread(eligible: &[u32], computed: &Range<u32>, count: usize) -> Vec<u32> {
    if eligible.len() <= count {
        return eligible.to_vec();
    }
    let length = u64::from(computed.end - computed.start);
    let target = |number: usize| computed.start + (length * number as u64 / (count as u64 + 1)) as u32;
    let nearest = |target: u32| eligible.iter().copied().min_by_key(|endpoint| endpoint.abs_diff(target));
    let mut selected: Vec<u32> = (1..=count).filter_map(|number| nearest(target(number))).collect();
    selected.dedup();
    selected
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Capacity;

    fn geometry(snapshots: u32, slots: u32) -> Geometry {
        Geometry {
            page_tokens: 64,
            pages: 100,
            snapshots,
            slots,
            context_tokens_max: 8192,
            prefill: vec![Capacity { size: 64, cost_ns: 1 }],
            decode: Vec::new(),
            frames: 2,
        }
    }

    #[test]
    fn a_request_takes_its_share_of_the_snapshots_and_at_most_eight() {
        for (snapshots, slots, expected) in
            [(0, 4, 0), (1, 4, 1), (7, 4, 1), (8, 4, 2), (32, 4, 8), (99, 1, 8)]
        {
            assert_eq!(budget(&geometry(snapshots, slots)), expected);
        }
    }

    #[test]
    fn the_end_of_the_request_comes_first_and_then_the_end_of_the_prompt() {
        let select = |snapshots, output_tokens_max| {
            super::select(&geometry(snapshots, 1), &[100, 200], 0..300, output_tokens_max)
        };
        assert!(select(0, 9).is_empty());
        assert!(select(1, 9).is_empty());
        assert_eq!(select(2, 9), [300]);
        assert_eq!(select(3, 9), [100, 300]);
        assert_eq!(select(4, 9), [100, 200, 300]);
        assert_eq!(select(2, 1), [100], "a single token's end is the prompt's");
        assert!(super::select(&geometry(8, 1), &[100], 300..300, 9).is_empty(), "all of it is cached");
    }

    #[test]
    fn too_many_message_ends_are_thinned_to_equal_intervals() {
        let endpoints: Vec<u32> = (1..40).map(|number| number * 100).collect();
        let selected = select(&geometry(5, 1), &endpoints, 0..4000, 9);
        assert_eq!(selected, [1000, 2000, 3000, 4000]);
        let selected = select(&geometry(5, 1), &endpoints, 2000..4000, 9);
        assert_eq!(selected, [2500, 3000, 3500, 4000]);
        // Two targets may have one nearest end, and a tie takes the earlier.
        assert_eq!(spread(&[100, 900, 910], &(0..1000), 2), [100, 900]);
        assert_eq!(spread(&[400, 600], &(0..1000), 1), [400]);
        assert_eq!(spread(&[10, 20, 1000], &(0..1100), 2), [20, 1000]);
    }

    #[test]
    fn a_message_end_close_behind_another_endpoint_does_not_interrupt() {
        let endpoints = [1000, 1002, 1063, 1064, 1500, 1996];
        assert_eq!(eligible(&geometry(8, 1), &endpoints, &(1000..2000)), [1064, 1500, 1996]);
        assert_eq!(eligible(&geometry(8, 1), &endpoints, &(0..1996)), [1000, 1064, 1500]);
    }
}
