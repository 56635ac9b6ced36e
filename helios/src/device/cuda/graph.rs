//! Programs as CUDA graphs: rebuilt node by node and edge by edge, instantiated, and uploaded to the device.
//!
//! A rebuilt graph is what was captured: every attribute that a launch had is set on its node, and every edge keeps its port. The
//! graph of a part of a program has the edges between its nodes; what the others stand for is the order of launches.
#![expect(unsafe_code, reason = "the driver's interface is C")]

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use super::context::Context;
use super::driver::{check, report, sys};
use super::module::Kernels;
use super::stream::Stream;
use crate::core::contract::{
    AccessProperty, AccessWindow, ClusterScheduling, Copy, Edge, EdgePort, Extent3, Fill, Launch, Node,
    Program,
};
use crate::device::DeviceError;

use sys::CUlaunchAttributeID as Attribute;

/// Nodes of a program that are ready to be launched. Their kernels and all memory that they touch outlive it.
#[derive(Debug)]
pub struct Graph {
    context: Arc<Context>,
    executable: sys::CUgraphExec,
}

// SAFETY: an executable graph may be used from any thread, one at a time, which `&mut` of its owner sees to.
unsafe impl Send for Graph {}

impl Graph {
    /// Builds and instantiates a run of a program's nodes, and has `stream` upload it. The context is bound.
    pub fn new(
        context: &Arc<Context>,
        program: &Program,
        nodes: Range<usize>,
        kernels: &Kernels,
        stream: &Stream,
    ) -> Result<Self, DeviceError> {
        let template = Template::build(context, program, nodes, kernels)?;
        let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0;
        let mut executable = std::ptr::null_mut();
        // SAFETY: the template is whole, and the driver writes one handle, which is destroyed in `drop`.
        check("cuGraphInstantiate", unsafe {
            sys::cuGraphInstantiateWithFlags(&raw mut executable, template.graph, flags.into())
        })?;
        let graph = Self { context: Arc::clone(context), executable };
        // SAFETY: both are alive.
        check("cuGraphUpload", unsafe { sys::cuGraphUpload(graph.executable, stream.raw()) })?;
        Ok(graph)
    }

    /// Submits the nodes behind what was submitted to `stream` before.
    ///
    /// # Safety
    /// The memory that the nodes touch is backed and stays so until they are complete, and nothing else uses it meanwhile in a
    /// way that disagrees.
    pub unsafe fn launch(&self, stream: &Stream) -> Result<(), DeviceError> {
        // SAFETY: both are alive, and the rest is the caller's promise.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.executable, stream.raw()) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        report(self.context.bind());
        // SAFETY: it was instantiated once; a launch in flight keeps what it needs.
        report(check("cuGraphExecDestroy", unsafe { sys::cuGraphExecDestroy(self.executable) }));
    }
}

/// A graph before it is instantiated.
struct Template<'a> {
    context: &'a Context,
    graph: sys::CUgraph,
}

impl<'a> Template<'a> {
    fn build(
        context: &'a Context,
        program: &Program,
        range: Range<usize>,
        kernels: &Kernels,
    ) -> Result<Self, DeviceError> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: the driver writes one handle, which is destroyed in `drop`.
        check("cuGraphCreate", unsafe { sys::cuGraphCreate(&raw mut graph, 0) })?;
        let template = Self { context, graph };
        let place = |(index, error)| DeviceError::Node {
            program: program.name.clone(),
            node: index,
            reason: Box::new(error),
        };
        let mut nodes = Vec::with_capacity(range.len());
        for (index, node) in (0u32..).zip(&program.nodes).skip(range.start).take(range.len()) {
            let added = match node {
                Node::Launch(launch) => template.add_launch(launch, kernels),
                Node::Copy(copy) => template.add_copy(copy),
                Node::Fill(fill) => template.add_fill(fill),
                Node::Call { .. } => unreachable!("the nodes of a bound CUDA core are no calls"),
            };
            nodes.push(added.map_err(|error| place((index, error)))?);
        }
        template.connect(&nodes, &edges_within(program, range))?;
        Ok(template)
    }

    fn add_launch(&self, launch: &Launch, kernels: &Kernels) -> Result<sys::CUgraphNode, DeviceError> {
        kernels.check_parameters(launch.kernel, &launch.parameter_bytes)?;
        let mut values = launch.parameters.as_slice();
        let mut pointers: Vec<*mut c_void> = Vec::with_capacity(launch.parameter_bytes.len());
        for &bytes in &launch.parameter_bytes {
            pointers.push(values.as_ptr().cast_mut().cast());
            values = &values[bytes as usize..];
        }
        let parameters = sys::CUDA_KERNEL_NODE_PARAMS {
            func: kernels.function(launch.kernel),
            gridDimX: launch.grid.x,
            gridDimY: launch.grid.y,
            gridDimZ: launch.grid.z,
            blockDimX: launch.block.x,
            blockDimY: launch.block.y,
            blockDimZ: launch.block.z,
            sharedMemBytes: launch.dynamic_shared_bytes,
            kernelParams: pointers.as_mut_ptr(),
            extra: std::ptr::null_mut(),
            kern: std::ptr::null_mut(),
            ctx: std::ptr::null_mut(),
        };
        let mut node = std::ptr::null_mut();
        // SAFETY: the function is loaded; each pointer leads to as many bytes as the function takes there, which the driver
        // copies before it returns.
        check("cuGraphAddKernelNode", unsafe {
            sys::cuGraphAddKernelNode_v2(
                &raw mut node,
                self.graph,
                std::ptr::null(),
                0,
                &raw const parameters,
            )
        })?;
        for (attribute, value) in attributes(launch) {
            // SAFETY: the node is a kernel's, and the value is the one that this attribute has.
            let set = unsafe { sys::cuGraphKernelNodeSetAttribute(node, attribute, &raw const value) };
            check(&format!("cuGraphKernelNodeSetAttribute({attribute:?})"), set)?;
        }
        Ok(node)
    }

    fn add_copy(&self, copy: &Copy) -> Result<sys::CUgraphNode, DeviceError> {
        let bytes = usize::try_from(copy.bytes).expect("a bound copy lies in a region");
        let parameters = sys::CUDA_MEMCPY3D {
            srcXInBytes: 0,
            srcY: 0,
            srcZ: 0,
            srcLOD: 0,
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcHost: std::ptr::null(),
            srcDevice: copy.source,
            srcArray: std::ptr::null_mut(),
            reserved0: std::ptr::null_mut(),
            srcPitch: bytes,
            srcHeight: 1,
            dstXInBytes: 0,
            dstY: 0,
            dstZ: 0,
            dstLOD: 0,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstHost: std::ptr::null_mut(),
            dstDevice: copy.destination,
            dstArray: std::ptr::null_mut(),
            reserved1: std::ptr::null_mut(),
            dstPitch: bytes,
            dstHeight: 1,
            WidthInBytes: bytes,
            Height: 1,
            Depth: 1,
        };
        let (mut node, graph) = (std::ptr::null_mut(), self.graph);
        let context = self.context.raw();
        // SAFETY: the driver reads the parameters; the ranges lie in regions of the core.
        check("cuGraphAddMemcpyNode", unsafe {
            let none = std::ptr::null();
            sys::cuGraphAddMemcpyNode(&raw mut node, graph, none, 0, &raw const parameters, context)
        })?;
        Ok(node)
    }

    fn add_fill(&self, fill: &Fill) -> Result<sys::CUgraphNode, DeviceError> {
        let parameters = sys::CUDA_MEMSET_NODE_PARAMS {
            dst: fill.destination,
            pitch: 0,
            value: fill.value,
            elementSize: fill.element_bytes,
            width: usize::try_from(fill.elements).expect("a bound fill lies in a region"),
            height: 1,
        };
        let (mut node, graph) = (std::ptr::null_mut(), self.graph);
        let context = self.context.raw();
        // SAFETY: the driver reads the parameters; the range lies in a region of the core.
        check("cuGraphAddMemsetNode", unsafe {
            let none = std::ptr::null();
            sys::cuGraphAddMemsetNode(&raw mut node, graph, none, 0, &raw const parameters, context)
        })?;
        Ok(node)
    }

    /// Adds one edge a call: of a list, driver 580.159 gives every edge the ports of the first one.
    fn connect(&self, nodes: &[sys::CUgraphNode], edges: &[Edge]) -> Result<(), DeviceError> {
        for edge in edges {
            let (from, to) = (nodes[edge.from as usize], nodes[edge.to as usize]);
            let data = edge_data(edge.port);
            // SAFETY: the driver reads one of each.
            check("cuGraphAddDependencies", unsafe {
                sys::cuGraphAddDependencies_v2(self.graph, &raw const from, &raw const to, &raw const data, 1)
            })?;
        }
        Ok(())
    }
}

impl Drop for Template<'_> {
    fn drop(&mut self) {
        // SAFETY: the graph was created once; what was instantiated from it is a copy.
        report(check("cuGraphDestroy", unsafe { sys::cuGraphDestroy(self.graph) }));
    }
}

/// The edges between nodes of `range`, which count from its start.
fn edges_within(program: &Program, range: Range<usize>) -> Vec<Edge> {
    let edges = edges(program).into_iter();
    let inside = edges.filter(|edge| [edge.from, edge.to].iter().all(|&end| range.contains(&(end as usize))));
    let start = range.start as u32;
    inside.map(|edge| Edge { from: edge.from - start, to: edge.to - start, ..edge }).collect()
}

/// A program's edges; one that has none runs its nodes one after another.
fn edges(program: &Program) -> Vec<Edge> {
    if !program.edges.is_empty() {
        return program.edges.clone();
    }
    let last = program.nodes.len().saturating_sub(1);
    (0u32..).take(last).map(|from| Edge { from, to: from + 1, port: EdgePort::End }).collect()
}

fn edge_data(port: EdgePort) -> sys::CUgraphEdgeData {
    let (from_port, type_) = match port {
        EdgePort::End => (0, 0),
        EdgePort::Trigger => (1, 1),
        EdgePort::Start => (2, 1),
    };
    sys::CUgraphEdgeData { from_port, to_port: 0, type_, reserved: [0; 5] }
}

/// The attributes that differ from those of a launch without any.
fn attributes(launch: &Launch) -> Vec<(Attribute, sys::CUlaunchAttributeValue)> {
    let mut found = Vec::new();
    let mut set = |attribute, value| found.push((attribute, value));
    if launch.cooperative {
        set(Attribute::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, sys::CUlaunchAttributeValue { cooperative: 1 });
    }
    if launch.priority != 0 {
        let value = sys::CUlaunchAttributeValue { priority: launch.priority };
        set(Attribute::CU_LAUNCH_ATTRIBUTE_PRIORITY, value);
    }
    if let Some(Extent3 { x, y, z }) = launch.cluster {
        let cluster = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
        let value = sys::CUlaunchAttributeValue { clusterDim: cluster };
        set(Attribute::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, value);
    }
    if let Some(Extent3 { x, y, z }) = launch.preferred_cluster {
        let cluster = sys::CUlaunchAttributeValue_union__bindgen_ty_4 { x, y, z };
        let value = sys::CUlaunchAttributeValue { preferredClusterDim: cluster };
        set(Attribute::CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION, value);
    }
    use sys::CUclusterSchedulingPolicy as Policy;
    let policy = match launch.cluster_scheduling {
        ClusterScheduling::Default => None,
        ClusterScheduling::Spread => Some(Policy::CU_CLUSTER_SCHEDULING_POLICY_SPREAD),
        ClusterScheduling::LoadBalancing => Some(Policy::CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING),
    };
    if let Some(policy) = policy {
        let value = sys::CUlaunchAttributeValue { clusterSchedulingPolicyPreference: policy };
        set(Attribute::CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, value);
    }
    if launch.remote_memory_sync_domain {
        let domain = sys::CUlaunchMemSyncDomain::CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
        let value = sys::CUlaunchAttributeValue { memSyncDomain: domain };
        set(Attribute::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, value);
    }
    if let Some([default_, remote]) = launch.memory_sync_domain_map {
        let map = sys::CUlaunchMemSyncDomainMap { default_, remote };
        let value = sys::CUlaunchAttributeValue { memSyncDomainMap: map };
        set(Attribute::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, value);
    }
    if let Some(window) = &launch.access_window {
        let value = sys::CUlaunchAttributeValue { accessPolicyWindow: access_window(window) };
        set(Attribute::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, value);
    }
    if launch.nvlink_centric_scheduling {
        let value = sys::CUlaunchAttributeValue { nvlinkUtilCentricScheduling: 1 };
        set(Attribute::CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING, value);
    }
    found
}

fn access_window(window: &AccessWindow) -> sys::CUaccessPolicyWindow {
    let property = |property| match property {
        AccessProperty::Normal => sys::CUaccessProperty::CU_ACCESS_PROPERTY_NORMAL,
        AccessProperty::Streaming => sys::CUaccessProperty::CU_ACCESS_PROPERTY_STREAMING,
        AccessProperty::Persisting => sys::CUaccessProperty::CU_ACCESS_PROPERTY_PERSISTING,
    };
    sys::CUaccessPolicyWindow {
        base_ptr: std::ptr::without_provenance_mut(window.address as usize),
        num_bytes: window.bytes as usize,
        hitRatio: window.hit_ratio,
        hitProp: property(window.hit),
        missProp: property(window.miss),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::contract::OperationFamily;

    fn program(nodes: u32, edges: Vec<Edge>) -> Program {
        let node = |index| Node::Call { kernel: index, arguments: vec![] };
        Program {
            name: "decode.1".to_owned(),
            family: OperationFamily::Decode,
            requests: 1,
            tokens: 0,
            nodes: (0..nodes).map(node).collect(),
            edges,
            bindings: vec![],
            cost_ms: 0.0,
        }
    }

    #[test]
    fn a_program_without_edges_is_a_chain() {
        let ends = |edges: Vec<Edge>| edges.iter().map(|edge| (edge.from, edge.to)).collect::<Vec<_>>();
        assert_eq!(ends(edges(&program(3, vec![]))), [(0, 1), (1, 2)]);
        assert_eq!(ends(edges(&program(1, vec![]))), []);
        let given = Edge { from: 0, to: 2, port: EdgePort::Trigger };
        assert_eq!(edges(&program(3, vec![given])), [given]);
    }

    #[test]
    fn a_part_keeps_the_edges_between_its_nodes() {
        let edge = |from, to, port| Edge { from, to, port };
        let given = [edge(0, 1, EdgePort::Trigger), edge(1, 2, EdgePort::Trigger), edge(0, 3, EdgePort::End)];
        let last = edge(2, 3, EdgePort::Start);
        let program = program(4, [&given[..], &[last]].concat());
        assert_eq!(edges_within(&program, 0..2), [given[0]]);
        assert_eq!(edges_within(&program, 2..4), [edge(0, 1, EdgePort::Start)]);
        // One node has no edges, which does not make a chain of it.
        assert_eq!(edges_within(&program, 3..4), []);
        assert_eq!(edges_within(&program, 0..4), [&given[..], &[last]].concat());
    }

    #[test]
    fn ports_are_the_drivers() {
        let data = |port| {
            let data = edge_data(port);
            (data.type_, data.from_port, data.to_port)
        };
        assert_eq!(data(EdgePort::End), (0, 0, 0));
        assert_eq!(data(EdgePort::Trigger), (1, 1, 0));
        assert_eq!(data(EdgePort::Start), (1, 2, 0));
    }

    #[test]
    fn only_what_differs_from_the_default_is_set() {
        let cluster = Extent3 { x: 2, y: 1, z: 1 };
        let plain = Launch::plain();
        assert!(attributes(&plain).is_empty());
        let full = Launch {
            cooperative: true,
            priority: -1,
            cluster: Some(cluster),
            cluster_scheduling: ClusterScheduling::Spread,
            remote_memory_sync_domain: true,
            memory_sync_domain_map: Some([0, 1]),
            ..plain
        };
        let set: Vec<u32> = attributes(&full).iter().map(|(attribute, _)| *attribute as u32).collect();
        assert_eq!(set, [2, 8, 4, 5, 10, 9]);
    }
}
