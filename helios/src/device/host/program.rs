//! Programs, flattened to what the execution thread needs: entry points and their arguments.
#![expect(unsafe_code, reason = "calling a core's machine code")]

use std::ffi::c_void;
use std::ops::Range;

use super::module::{Entry, Module};
use crate::core::contract::{BoundContract, Node, ValueSource};
use crate::device::DeviceError;

/// One program: its calls in order, and the arguments of all of them in one run of memory.
pub struct HostProgram {
    calls: Vec<Call>,
    arguments: Vec<u64>,
    /// Calls before the first one that reads grammar masks.
    early: usize,
}

/// Which calls of a program run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Whole,
    /// Those before the first one that reads grammar masks.
    Early,
    /// Those from there on.
    Rest,
}

struct Call {
    entry: Entry,
    arguments: Range<usize>,
}

impl HostProgram {
    /// Resolves the kernels of a core and flattens its programs, in the contract's order.
    pub fn build_all(contract: &BoundContract, modules: &[Module]) -> Result<Vec<Self>, DeviceError> {
        let kernels = contract.kernels.iter();
        let entries: Vec<Entry> = kernels
            .map(|kernel| modules[kernel.module as usize].entry(&kernel.symbol))
            .collect::<Result<_, _>>()?;
        let masks = contract.buffer(ValueSource::GrammarMasks).map_or(0..0, |id| {
            let buffer = &contract.buffers[id.0 as usize];
            buffer.address..buffer.address + buffer.bytes
        });
        Ok(contract.programs.iter().map(|program| Self::build(&program.nodes, &entries, &masks)).collect())
    }

    /// Runs a part's calls, one after another.
    ///
    /// # Safety
    /// The core's regions are mapped, and nothing else reads or writes what the program writes.
    pub unsafe fn run(&self, part: Part) {
        let calls = match part {
            Part::Whole => &self.calls[..],
            Part::Early => &self.calls[..self.early],
            Part::Rest => &self.calls[self.early..],
        };
        for call in calls {
            let arguments = self.arguments[call.arguments.clone()].as_ptr().cast::<*mut c_void>();
            // SAFETY: the entry was prepared for these arguments; their memory is mapped and ours by the caller's promise.
            unsafe { (call.entry)(arguments) };
        }
    }

    fn build(nodes: &[Node], entries: &[Entry], masks: &Range<u64>) -> Self {
        let mut all = Vec::new();
        let calls: Vec<Call> = nodes
            .iter()
            .map(|node| {
                let Node::Call { kernel, arguments } = node else {
                    unreachable!("the nodes of a bound host core are calls")
                };
                let start = all.len();
                all.extend_from_slice(arguments);
                Call { entry: entries[*kernel as usize], arguments: start..all.len() }
            })
            .collect();
        let reads_masks = |call: &Call| all[call.arguments.clone()].iter().any(|word| masks.contains(word));
        let early = calls.iter().position(reads_masks).unwrap_or(calls.len());
        Self { calls, arguments: all, early }
    }
}
