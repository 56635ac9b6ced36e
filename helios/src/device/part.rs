//! Where programs are parted: before the first node that reads grammar masks. One rule for every device.
//!
//! A mask follows from the token that was sampled last, and only the next sample waits for it. What a program does before that
//! runs while the mask is made. Nodes stand behind all that they wait for, so every beginning of a program may run by itself.

use std::ops::Range;

use super::ProgramId;
use crate::core::contract::{BoundContract, Launch, Node, ValueSource};

/// What addresses are aligned to, in a parameter that is a structure too.
const WORD_BYTES: usize = 8;

/// Which nodes of a program run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Whole,
    /// Those before the first one that reads grammar masks.
    Early,
    /// Those from there on.
    Rest,
}

impl Part {
    /// What a log calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Early => "early",
            Self::Rest => "rest",
        }
    }

    /// The part's nodes, of `count` in all, the first `early` of which read no masks.
    pub fn nodes(self, early: usize, count: usize) -> Range<usize> {
        match self {
            Self::Whole => 0..count,
            Self::Early => 0..early,
            Self::Rest => early..count,
        }
    }
}

/// The program whose early part was submitted alone, until its rest is.
#[derive(Debug, Default)]
pub struct Begun(Option<ProgramId>);

impl Begun {
    /// Notes that the early part of `program` was submitted.
    pub fn begin(&mut self, program: ProgramId) {
        assert_eq!(self.0, None, "a program that was begun is launched before any other");
        self.0 = Some(program);
    }

    /// What is left of `program`, which is submitted next.
    pub fn left(&self, program: ProgramId) -> Part {
        match self.0 {
            None => Part::Whole,
            Some(begun) => {
                assert_eq!(begun, program, "a program that was begun is launched before any other");
                Part::Rest
            }
        }
    }

    /// Notes that what was left is submitted.
    pub fn end(&mut self) {
        self.0 = None;
    }
}

/// How many nodes of each program come before the first one that reads grammar masks, in the contract's order.
pub fn early_nodes(contract: &BoundContract) -> Vec<usize> {
    let masks = contract.buffer(ValueSource::GrammarMasks).map_or(0..0, |id| {
        let buffer = &contract.buffers[id.0 as usize];
        buffer.address..buffer.address + buffer.bytes
    });
    contract.programs.iter().map(|program| before_reader(&program.nodes, &masks)).collect()
}

fn before_reader(nodes: &[Node], memory: &Range<u64>) -> usize {
    nodes.iter().position(|node| reads(node, memory)).unwrap_or(nodes.len())
}

/// Whether a node reads `memory`, which programs only read: a kernel that is given an address there does.
fn reads(node: &Node, memory: &Range<u64>) -> bool {
    match node {
        Node::Call { arguments, .. } => arguments.iter().any(|word| memory.contains(word)),
        Node::Launch(launch) => words(launch).any(|word| memory.contains(&word)),
        Node::Copy(copy) => copy.source < memory.end && memory.start < copy.source + copy.bytes,
        Node::Fill(_) => false,
    }
}

/// The aligned words of a launch's parameters.
fn words(launch: &Launch) -> impl Iterator<Item = u64> {
    let mut rest = launch.parameters.as_slice();
    launch.parameter_bytes.iter().flat_map(move |&bytes| {
        let (parameter, others) = rest.split_at(bytes as usize);
        rest = others;
        let words = parameter.chunks_exact(WORD_BYTES);
        words.map(|word| u64::from_le_bytes(word.try_into().expect("chunks of a word's length")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::contract::{Copy, Fill};

    const MASKS: Range<u64> = 0x2000..0x2100;

    fn call(arguments: &[u64]) -> Node {
        Node::Call { kernel: 0, arguments: arguments.to_vec() }
    }

    fn launch(parameters: &[&[u8]]) -> Node {
        let parameter_bytes = parameters.iter().map(|value| value.len() as u32).collect();
        Node::Launch(Launch { parameters: parameters.concat(), parameter_bytes, ..Launch::plain() })
    }

    #[test]
    fn a_program_is_parted_before_its_first_reader() {
        let reader = call(&[7, 0x20ff]);
        let (before, after) = (call(&[0x1fff]), call(&[0x2100]));
        assert_eq!(
            before_reader(&[before.clone(), after.clone(), reader.clone(), before, reader.clone()], &MASKS),
            2
        );
        assert_eq!(before_reader(&[reader], &MASKS), 0);
        assert_eq!(before_reader(&[after], &MASKS), 1);
        assert_eq!(before_reader(&[call(&[0])], &(0..0)), 1);
    }

    #[test]
    fn a_launch_reads_what_any_word_of_its_parameters_points_to() {
        let (masks, other) = (0x2040u64.to_le_bytes(), 0x5000u64.to_le_bytes());
        assert!(reads(&launch(&[&other, &masks]), &MASKS));
        assert!(reads(&launch(&[&[0; 4], &masks, &[0; 2]]), &MASKS));
        assert!(reads(&launch(&[&[other, masks, other].concat()]), &MASKS));
        assert!(!reads(&launch(&[&other, &[0; 4]]), &MASKS));
        assert!(!reads(&launch(&[]), &MASKS));
        // The same bytes, but of two numbers.
        assert!(!reads(&launch(&[&masks[..4], &masks[4..]]), &MASKS));
    }

    #[test]
    fn a_copy_reads_its_source_and_a_fill_nothing() {
        let copy = |source, destination| Node::Copy(Copy { destination, source, bytes: 16 });
        assert!(reads(&copy(0x1ff1, 0), &MASKS) && reads(&copy(0x20ff, 0), &MASKS));
        assert!(!reads(&copy(0x1ff0, 0), &MASKS) && !reads(&copy(0x2100, 0), &MASKS));
        assert!(!reads(&copy(0, 0x2000), &MASKS));
        let fill = Fill { destination: 0x2000, value: 0, element_bytes: 4, elements: 1 };
        assert!(!reads(&Node::Fill(fill), &MASKS));
    }

    #[test]
    fn parts_are_a_whole() {
        for early in 0..=3 {
            let (first, second) = (Part::Early.nodes(early, 3), Part::Rest.nodes(early, 3));
            assert_eq!((first.start, first.end, second.end), (0, second.start, 3));
        }
        assert_eq!(Part::Whole.nodes(1, 3), 0..3);
    }

    #[test]
    fn what_was_begun_is_launched_next() {
        let (mut begun, program) = (Begun::default(), ProgramId(3));
        assert_eq!(begun.left(program), Part::Whole);
        begun.begin(program);
        assert_eq!(begun.left(program), Part::Rest);
        begun.end();
        assert_eq!(begun.left(ProgramId(4)), Part::Whole);
    }
}
