//! The order of a graph's nodes in a program: each after all that it waits for, otherwise as they were captured.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Indexes of `count` nodes in their order, or `None` where edges form a cycle. Edges lead from the first to the second.
pub fn order(count: usize, edges: &[(usize, usize)]) -> Option<Vec<usize>> {
    let mut waits_for = vec![0usize; count];
    let mut dependents = vec![Vec::new(); count];
    for &(from, to) in edges {
        waits_for[to] += 1;
        dependents[from].push(to);
    }
    let mut ready: BinaryHeap<Reverse<usize>> =
        (0..count).filter(|&node| waits_for[node] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(Reverse(node)) = ready.pop() {
        order.push(node);
        for &dependent in &dependents[node] {
            waits_for[dependent] -= 1;
            if waits_for[dependent] == 0 {
                ready.push(Reverse(dependent));
            }
        }
    }
    (order.len() == count).then_some(order)
}

#[cfg(test)]
mod tests {
    use super::order;

    #[test]
    fn nodes_come_behind_what_they_wait_for_and_otherwise_as_captured() {
        assert_eq!(order(4, &[]), Some(vec![0, 1, 2, 3]));
        assert_eq!(order(4, &[(3, 0), (0, 1)]), Some(vec![2, 3, 0, 1]));
        // Two edges between the same nodes, as a graph with several ports may have, count twice on both sides.
        assert_eq!(order(3, &[(2, 1), (2, 1), (1, 0)]), Some(vec![2, 1, 0]));
        assert_eq!(order(0, &[]), Some(vec![]));
    }

    #[test]
    fn a_cycle_has_no_order() {
        assert_eq!(order(3, &[(0, 1), (1, 2), (2, 1)]), None);
        assert_eq!(order(1, &[(0, 0)]), None);
    }
}
