//! Programs, flattened to what the execution thread needs: entry points and their arguments.
#![expect(unsafe_code, reason = "calling a core's machine code")]

use std::ffi::c_void;
use std::ops::Range;

use super::module::{Entry, Module};
use crate::core::contract::{BoundContract, Node};
use crate::device::DeviceError;
use crate::device::part::{Part, early_nodes};

/// One program: its calls in order, and the arguments of all of them in one run of memory.
pub struct HostProgram {
    calls: Vec<Call>,
    arguments: Vec<u64>,
    /// Calls before the first one that reads grammar masks.
    early: usize,
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
        let programs = contract.programs.iter().zip(early_nodes(contract));
        Ok(programs.map(|(program, early)| Self::build(&program.nodes, &entries, early)).collect())
    }

    /// Runs a part's calls, one after another.
    ///
    /// # Safety
    /// The core's regions are mapped, and nothing else reads or writes what the program writes.
    pub unsafe fn run(&self, part: Part) {
        for call in &self.calls[part.nodes(self.early, self.calls.len())] {
            let arguments = self.arguments[call.arguments.clone()].as_ptr().cast::<*mut c_void>();
            // SAFETY: the entry was prepared for these arguments; their memory is mapped and ours by the caller's promise.
            unsafe { (call.entry)(arguments) };
        }
    }

    fn build(nodes: &[Node], entries: &[Entry], early: usize) -> Self {
        let mut all = Vec::new();
        let calls = nodes
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
        Self { calls, arguments: all, early }
    }
}
