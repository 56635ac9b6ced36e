//! Programs, ready to be launched: each as one graph, and decode programs in two parts beside it.
//!
//! The whole graph is what nearly every step launches, with every edge that was captured. Parts are for a step that begins before
//! its grammar mask is made. That follows a sampled token, so it is a decode step; the others' parts would take memory for nothing.

use std::ops::Range;
use std::sync::Arc;

use super::context::Context;
use super::graph::Graph;
use super::module::Kernels;
use super::stream::Stream;
use crate::core::contract::{BoundContract, OperationFamily, Program};
use crate::device::DeviceError;
use crate::device::part::{Part, early_nodes};

/// A program's graphs. Its kernels and all memory that it touches outlive it.
#[derive(Debug)]
pub(super) struct CudaProgram {
    pub name: String,
    whole: Graph,
    /// What is launched early, and the rest.
    parts: Option<[Graph; 2]>,
}

impl CudaProgram {
    /// Builds a core's programs, in the contract's order, and has `stream` upload them. The context is bound.
    pub fn build_all(
        context: &Arc<Context>,
        contract: &BoundContract,
        kernels: &Kernels,
        stream: &Stream,
    ) -> Result<Vec<Self>, DeviceError> {
        let programs = contract.programs.iter().zip(early_nodes(contract));
        let build = |(program, early): (&Program, usize)| {
            let graph = |nodes| Graph::new(context, program, nodes, kernels, stream);
            let parts = parts(program, early).map(|[first, second]| Ok([graph(first)?, graph(second)?]));
            Ok(Self {
                name: program.name.clone(),
                whole: graph(0..program.nodes.len())?,
                parts: parts.transpose()?,
            })
        };
        programs.map(build).collect()
    }

    /// A part's graph, if the program is launched in parts or the part is all of it.
    pub fn graph(&self, part: Part) -> Option<&Graph> {
        let parts = self.parts.as_ref();
        match part {
            Part::Whole => Some(&self.whole),
            Part::Early => parts.map(|[early, _]| early),
            Part::Rest => parts.map(|[_, rest]| rest),
        }
    }
}

/// The nodes of the parts that `program` is launched in, whose first `early` nodes read no grammar masks.
fn parts(program: &Program, early: usize) -> Option<[Range<usize>; 2]> {
    let count = program.nodes.len();
    let is_parted = program.family == OperationFamily::Decode && 0 < early && early < count;
    is_parted.then(|| [Part::Early, Part::Rest].map(|part| part.nodes(early, count)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::contract::Node;

    #[test]
    fn decode_programs_are_parted_where_both_parts_have_nodes() {
        let program = |family| Program {
            name: "any".to_owned(),
            family,
            requests: 1,
            tokens: 0,
            nodes: vec![Node::Call { kernel: 0, arguments: vec![] }; 3],
            edges: vec![],
            bindings: vec![],
            cost_ms: 0.0,
        };
        let decode = program(OperationFamily::Decode);
        assert_eq!(parts(&decode, 2), Some([0..2, 2..3]));
        assert_eq!(parts(&decode, 0), None);
        assert_eq!(parts(&decode, 3), None);
        assert_eq!(parts(&program(OperationFamily::Prefill), 2), None);
    }
}
