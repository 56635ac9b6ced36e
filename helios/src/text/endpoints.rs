//! Endpoints: byte marks of a text as cuts between its tokens.
//!
//! A cut is exact or there is none: no token may lie on both sides of a mark. Merges across a mark, and tokens that share
//! the span of one character, therefore make it disappear instead of moving it.

/// The cuts at `marks`, ascending, distinct and strictly inside the sequence of tokens, whose untrimmed byte spans are
/// `offsets`. Where tokens without bytes stand at a mark, they follow the cut.
pub(super) fn cuts(offsets: &[(usize, usize)], marks: &[usize]) -> Vec<u32> {
    // ends[i] is where the tokens before i end, starts[i] is where those from i on start; both never fall.
    let mut ends = Vec::with_capacity(offsets.len() + 1);
    ends.push(0);
    for &(_, end) in offsets {
        ends.push(end.max(ends[ends.len() - 1]));
    }
    let mut starts = vec![usize::MAX; offsets.len() + 1];
    for (index, &(start, _)) in offsets.iter().enumerate().rev() {
        starts[index] = start.min(starts[index + 1]);
    }
    let mut cuts: Vec<u32> = marks
        .iter()
        .filter_map(|&mark| {
            let cut = starts.partition_point(|&start| start < mark);
            (0 < cut && cut < offsets.len() && ends[cut] <= mark).then_some(cut as u32)
        })
        .collect();
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, word for word.
    fn is_exact(offsets: &[(usize, usize)], mark: usize, cut: usize) -> bool {
        offsets[..cut].iter().all(|&(_, end)| end <= mark)
            && offsets[cut..].iter().all(|&(start, _)| start >= mark)
    }

    fn naive(offsets: &[(usize, usize)], marks: &[usize]) -> Vec<u32> {
        let first = |&mark: &usize| (0..=offsets.len()).find(|&cut| is_exact(offsets, mark, cut));
        let inside = |&cut: &usize| 0 < cut && cut < offsets.len();
        let cuts: std::collections::BTreeSet<usize> = marks.iter().filter_map(first).filter(inside).collect();
        cuts.into_iter().map(|cut| cut as u32).collect()
    }

    #[test]
    fn tokens_across_a_mark_make_it_disappear() {
        let offsets = [(0, 2), (2, 6), (2, 6), (6, 6), (6, 9)];
        assert_eq!(cuts(&offsets, &[0, 1, 2, 3, 4, 6, 7, 9, 9, 12]), [1, 3]);
        assert_eq!(cuts(&offsets, &[6, 2, 6]), [1, 3]);
        assert_eq!(cuts(&[], &[0, 1]), [0; 0]);
    }

    proptest! {
        #[test]
        fn cuts_are_those_of_the_definition(
            steps in prop::collection::vec((0..3_usize, 0..4_usize), 0..12),
            disorder in prop::option::of((any::<prop::sample::Index>(), 0..8_usize, 0..8_usize)),
            marks in prop::collection::vec(0..40_usize, 0..12),
        ) {
            let mut position = 0;
            let mut offsets: Vec<(usize, usize)> = Vec::new();
            for (back, length) in steps {
                let start = position - back.min(position);
                position = start + length.max(back);
                offsets.push((start, position));
            }
            if let (Some((index, start, length)), false) = (disorder, offsets.is_empty()) {
                let index = index.index(offsets.len());
                offsets[index] = (start, start + length);
            }
            prop_assert_eq!(cuts(&offsets, &marks), naive(&offsets, &marks));
        }
    }
}
