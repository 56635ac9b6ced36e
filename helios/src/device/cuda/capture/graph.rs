//! A captured graph, node by node, as a program's messages.
#![expect(unsafe_code, reason = "the driver's interface is C")]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;

use super::attributes::{read_function, read_launch};
use super::order::order;
use super::{CaptureError, ModuleRecorder};
use crate::core::proto;
use crate::device::DeviceError;
use crate::device::cuda::context::Context;
use crate::device::cuda::driver::{check, sys};
use crate::device::cuda::module::parameter_layout;

/// How the list of a launch's extra arguments is marked.
const EXTRA_END: usize = 0;
const EXTRA_BUFFER: usize = 1;
/// More than a list may have that ends.
const EXTRA_LENGTH_MAX: usize = 16;

/// What a graph holds. Kernels refer to the recorder's images, launches to these kernels, and edges to these nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CapturedGraph {
    pub kernels: Vec<proto::Kernel>,
    pub nodes: Vec<proto::Node>,
    pub edges: Vec<proto::Edge>,
}

/// Ranges of addresses that a loader puts in place.
#[derive(Clone, Debug, Default)]
pub struct Spans(Vec<(u64, u64)>);

impl Spans {
    /// The spans of `ranges`, each an address and a length.
    pub fn new(ranges: impl IntoIterator<Item = (u64, u64)>) -> Self {
        Self(ranges.into_iter().collect())
    }

    fn hold(&self, address: u64, bytes: u64) -> bool {
        let inside = |&(start, length): &(u64, u64)| {
            address.checked_sub(start).is_some_and(|offset| offset <= length && bytes <= length - offset)
        };
        self.0.iter().any(inside)
    }
}

/// Reads a graph of the context's process. Memory that it uses must lie in `spans`.
///
/// # Safety
/// `graph` is a `CUgraph` that nothing changes or destroys meanwhile.
pub unsafe fn read_graph(
    context: &Context,
    graph: usize,
    recorder: &ModuleRecorder,
    spans: &Spans,
) -> Result<CapturedGraph, CaptureError> {
    context.bind()?;
    let graph: sys::CUgraph = std::ptr::with_exposed_provenance_mut(graph);
    let nodes = list_nodes(graph)?;
    let edges = list_edges(graph, &nodes)?;
    let ends: Vec<(usize, usize)> = edges.iter().map(|(from, to, _)| (*from, *to)).collect();
    let order = order(nodes.len(), &ends).expect("a captured graph has no cycle");
    let mut places = vec![0u32; nodes.len()];
    let mut reader =
        Reader { recorder, spans, kernels: Vec::new(), known: BTreeMap::new(), plain: BTreeSet::new() };
    let mut captured = CapturedGraph::default();
    for (place, &index) in (0u32..).zip(&order) {
        captured.nodes.push(reader.read(index, nodes[index])?);
        places[index] = place;
    }
    captured.kernels = reader.kernels;
    let edge = |(from, to, data): &(usize, usize, sys::CUgraphEdgeData)| proto::Edge {
        from: places[*from],
        to: places[*to],
        from_port: data.from_port.into(),
        r#type: data.type_.into(),
        to_port: data.to_port.into(),
    };
    captured.edges = edges.iter().map(edge).collect();
    captured.edges.sort_by_key(|edge| (edge.to, edge.from));
    Ok(captured)
}

struct Reader<'a> {
    recorder: &'a ModuleRecorder,
    spans: &'a Spans,
    kernels: Vec<proto::Kernel>,
    /// Index of each function in `kernels`.
    known: BTreeMap<usize, u32>,
    /// Words that are no addresses of memory, so that the driver is asked once for each.
    plain: BTreeSet<u64>,
}

impl Reader<'_> {
    fn read(&mut self, index: usize, node: sys::CUgraphNode) -> Result<proto::Node, CaptureError> {
        let mut kind = 0u32;
        // SAFETY: the node is one of the graph's. The driver writes an enum of 32 bits, which is read as a number because
        // a newer driver may know more kinds than the bindings do.
        let answer = unsafe { sys::cuGraphNodeGetType(node, (&raw mut kind).cast()) };
        check("cuGraphNodeGetType", answer)?;
        let action = match kind {
            0 => {
                let (kernel, launch) = self.read_launch(index, node)?;
                return Ok(proto::Node {
                    kernel,
                    arguments: vec![],
                    action: Some(proto::node::Action::Launch(launch)),
                });
            }
            1 => proto::node::Action::Copy(self.read_copy(index, node)?),
            2 => proto::node::Action::Fill(self.read_fill(index, node)?),
            _ => return Err(CaptureError::Kind { node: index, kind: kind_name(kind).to_owned() }),
        };
        Ok(proto::Node { kernel: 0, arguments: vec![], action: Some(action) })
    }

    fn read_launch(
        &mut self,
        index: usize,
        node: sys::CUgraphNode,
    ) -> Result<(u32, proto::Launch), CaptureError> {
        let mut parameters = MaybeUninit::<sys::CUDA_KERNEL_NODE_PARAMS>::zeroed();
        // SAFETY: the node is a kernel's, and the driver fills the structure.
        let answer = unsafe { sys::cuGraphKernelNodeGetParams_v2(node, parameters.as_mut_ptr()) };
        check("cuGraphKernelNodeGetParams", answer)?;
        // SAFETY: it is zeroed or filled, and holds pointers and integers only.
        let parameters = unsafe { parameters.assume_init() };
        let function = function_of(&parameters)?;
        let kernel = self.kernel(index, function)?;
        let symbol = self.kernels[kernel as usize].symbol.clone();
        let layout = parameter_layout(function)?;
        let values = values_of(&parameters, &layout);
        let Some(values) = values else {
            let kind = format!("a launch of `{symbol}` whose parameters cannot be read");
            return Err(CaptureError::Kind { node: index, kind });
        };
        for value in &values {
            self.check_words(index, value, &symbol)?;
        }
        let extent = |x, y, z| Some(proto::Extent3 { x, y, z });
        let mut launch = proto::Launch {
            grid: extent(parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ),
            block: extent(parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ),
            dynamic_shared_bytes: parameters.sharedMemBytes,
            parameter_bytes: values.iter().map(|value| value.len() as u32).collect(),
            parameters: values.concat(),
            ..Default::default()
        };
        read_launch(node, index, &mut launch)?;
        if let Some(window) = &launch.access_window {
            self.check_span(index, window.address, window.bytes, "a launch's access window")?;
        }
        Ok((kernel, launch))
    }

    /// The index of a function's kernel.
    fn kernel(&mut self, index: usize, function: sys::CUfunction) -> Result<u32, CaptureError> {
        if let Some(&kernel) = self.known.get(&function.addr()) {
            return Ok(kernel);
        }
        let mut name = std::ptr::null();
        // SAFETY: the function is that of a node, and the driver writes a pointer to a constant.
        check("cuFuncGetName", unsafe { sys::cuFuncGetName(&raw mut name, function) })?;
        // SAFETY: the name is a C string that lives as long as the function.
        let symbol = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        let mut module = std::ptr::null_mut();
        // SAFETY: the function is that of a node, and the driver writes one handle.
        check("cuFuncGetModule", unsafe { sys::cuFuncGetModule(&raw mut module, function) })?;
        let image = self.recorder.find(module.addr(), &symbol);
        let image =
            image.map_err(|reason| CaptureError::Module { node: index, symbol: symbol.clone(), reason })?;
        let module = u32::try_from(image).expect("a process has few images");
        let mut kernel = proto::Kernel { module, symbol, ..Default::default() };
        read_function(function, &mut kernel)?;
        // The same kernel may have a handle in each of several copies of its module. What these are set to may differ, and
        // a core sets one function: to what is enough for all of them.
        let same = |known: &proto::Kernel| known.module == kernel.module && known.symbol == kernel.symbol;
        let place = match self.kernels.iter().position(same) {
            Some(place) => {
                let known = &mut self.kernels[place];
                known.max_dynamic_shared_bytes =
                    known.max_dynamic_shared_bytes.max(kernel.max_dynamic_shared_bytes);
                known.non_portable_cluster |= kernel.non_portable_cluster;
                place
            }
            None => {
                self.kernels.push(kernel);
                self.kernels.len() - 1
            }
        };
        let place = u32::try_from(place).expect("a graph has fewer kernels than that");
        self.known.insert(function.addr(), place);
        Ok(place)
    }

    fn read_copy(&self, index: usize, node: sys::CUgraphNode) -> Result<proto::Copy, CaptureError> {
        let mut parameters = MaybeUninit::<sys::CUDA_MEMCPY3D>::zeroed();
        // SAFETY: the node is a copy's, and the driver fills the structure.
        let answer = unsafe { sys::cuGraphMemcpyNodeGetParams(node, parameters.as_mut_ptr()) };
        check("cuGraphMemcpyNodeGetParams", answer)?;
        // SAFETY: the driver filled it.
        let copy = unsafe { parameters.assume_init() };
        use sys::CUmemorytype as Type;
        let is_plain = |kind| matches!(kind, Type::CU_MEMORYTYPE_DEVICE | Type::CU_MEMORYTYPE_UNIFIED);
        let refused = |kind: &str| Err(CaptureError::Kind { node: index, kind: kind.to_owned() });
        if !is_plain(copy.srcMemoryType) || !is_plain(copy.dstMemoryType) {
            return refused("a copy from or to the host or an array");
        }
        if copy.Height > 1 || copy.Depth > 1 {
            return refused("a copy of several rows");
        }
        let offset = |x: usize, y: usize, z: usize, pitch: usize, height: usize| x + pitch * (y + height * z);
        let source_offset = offset(copy.srcXInBytes, copy.srcY, copy.srcZ, copy.srcPitch, copy.srcHeight);
        let target_offset = offset(copy.dstXInBytes, copy.dstY, copy.dstZ, copy.dstPitch, copy.dstHeight);
        let copied = proto::Copy {
            destination: copy.dstDevice + target_offset as u64,
            source: copy.srcDevice + source_offset as u64,
            bytes: copy.WidthInBytes as u64,
        };
        self.check_span(index, copied.source, copied.bytes, "a copy's source")?;
        self.check_span(index, copied.destination, copied.bytes, "a copy's destination")?;
        Ok(copied)
    }

    fn read_fill(&self, index: usize, node: sys::CUgraphNode) -> Result<proto::Fill, CaptureError> {
        let mut parameters = MaybeUninit::<sys::CUDA_MEMSET_NODE_PARAMS>::zeroed();
        // SAFETY: the node is a fill's, and the driver fills the structure.
        let answer = unsafe { sys::cuGraphMemsetNodeGetParams(node, parameters.as_mut_ptr()) };
        check("cuGraphMemsetNodeGetParams", answer)?;
        // SAFETY: it is zeroed or filled, and holds integers only.
        let fill = unsafe { parameters.assume_init() };
        if fill.height > 1 {
            let kind = "a fill of several rows".to_owned();
            return Err(CaptureError::Kind { node: index, kind });
        }
        let (elements, element_bytes) = (fill.width as u64, fill.elementSize);
        let bytes = elements.saturating_mul(element_bytes.into());
        self.check_span(index, fill.dst, bytes, "a fill's destination")?;
        Ok(proto::Fill { destination: fill.dst, value: fill.value, element_bytes, elements })
    }

    fn check_span(&self, node: usize, address: u64, bytes: u64, what: &str) -> Result<(), CaptureError> {
        if self.spans.hold(address, bytes) {
            return Ok(());
        }
        Err(CaptureError::Memory { node, what: what.to_owned(), address })
    }

    /// Refuses a parameter that points to memory of the process outside of the spans. A parameter may be a structure, so each
    /// of its aligned words is looked at; the driver knows which of them are addresses.
    fn check_words(&mut self, node: usize, value: &[u8], symbol: &str) -> Result<(), CaptureError> {
        for word in value.chunks_exact(8) {
            let word = u64::from_le_bytes(word.try_into().expect("chunks of eight"));
            if self.spans.hold(word, 0) || self.plain.contains(&word) {
                continue;
            }
            if is_memory(word) {
                let what = format!("a parameter of `{symbol}`");
                return Err(CaptureError::Memory { node, what, address: word });
            }
            self.plain.insert(word);
        }
        Ok(())
    }
}

fn list_nodes(graph: sys::CUgraph) -> Result<Vec<sys::CUgraphNode>, DeviceError> {
    let mut count = 0;
    // SAFETY: without a list the driver writes the count alone.
    let answer = unsafe { sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &raw mut count) };
    check("cuGraphGetNodes", answer)?;
    let mut nodes = vec![std::ptr::null_mut(); count];
    // SAFETY: the list has room for the count that it is given with.
    let answer = unsafe { sys::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count) };
    check("cuGraphGetNodes", answer)?;
    Ok(nodes)
}

/// The edges between the places of `nodes`.
fn list_edges(
    graph: sys::CUgraph,
    nodes: &[sys::CUgraphNode],
) -> Result<Vec<(usize, usize, sys::CUgraphEdgeData)>, DeviceError> {
    let mut count = 0;
    let null = std::ptr::null_mut();
    // SAFETY: without lists the driver writes the count alone.
    let answer = unsafe { sys::cuGraphGetEdges_v2(graph, null, null, std::ptr::null_mut(), &raw mut count) };
    check("cuGraphGetEdges", answer)?;
    if count == 0 {
        // The driver takes no lists that are empty.
        return Ok(Vec::new());
    }
    let (mut from, mut to) = (vec![null.cast(); count], vec![null.cast(); count]);
    let none = sys::CUgraphEdgeData { from_port: 0, to_port: 0, type_: 0, reserved: [0; 5] };
    let mut data = vec![none; count];
    let (from_start, to_start) = (from.as_mut_ptr(), to.as_mut_ptr());
    // SAFETY: the lists have room for the count that they are given with.
    let answer =
        unsafe { sys::cuGraphGetEdges_v2(graph, from_start, to_start, data.as_mut_ptr(), &raw mut count) };
    check("cuGraphGetEdges", answer)?;
    let places: BTreeMap<usize, usize> =
        nodes.iter().enumerate().map(|(place, node)| (node.addr(), place)).collect();
    let place = |node: sys::CUgraphNode| places[&node.addr()];
    let ends = from.into_iter().map(place).zip(to.into_iter().map(place));
    Ok(ends.zip(data).map(|((from, to), data)| (from, to, data)).collect())
}

fn function_of(parameters: &sys::CUDA_KERNEL_NODE_PARAMS) -> Result<sys::CUfunction, DeviceError> {
    if !parameters.func.is_null() {
        return Ok(parameters.func);
    }
    let mut function = std::ptr::null_mut();
    // SAFETY: a node without a function has a kernel; the driver writes one handle.
    let answer = unsafe { sys::cuKernelGetFunction(&raw mut function, parameters.kern) };
    check("cuKernelGetFunction", answer)?;
    Ok(function)
}

/// The values of a launch's parameters, which lie in a list of pointers or in one buffer.
fn values_of(parameters: &sys::CUDA_KERNEL_NODE_PARAMS, layout: &[(usize, usize)]) -> Option<Vec<Vec<u8>>> {
    let bytes = |start: *const c_void, length| {
        // SAFETY: the driver keeps as many bytes there for as long as the node is.
        unsafe { std::slice::from_raw_parts(start.cast::<u8>(), length) }.to_vec()
    };
    if layout.is_empty() {
        return Some(Vec::new());
    }
    if !parameters.kernelParams.is_null() {
        let pointers = parameters.kernelParams.cast_const();
        // SAFETY: there is a pointer for each parameter.
        let pointers = unsafe { std::slice::from_raw_parts(pointers, layout.len()) };
        return Some(pointers.iter().zip(layout).map(|(&start, &(_, size))| bytes(start, size)).collect());
    }
    if parameters.extra.is_null() {
        return None;
    }
    for entry in (0..EXTRA_LENGTH_MAX).step_by(2) {
        // SAFETY: the list goes on until its end, which was not come to.
        let name = unsafe { parameters.extra.wrapping_add(entry).read() }.addr();
        if name == EXTRA_END {
            return None;
        }
        if name == EXTRA_BUFFER {
            // SAFETY: a name is followed by its value.
            let buffer = unsafe { parameters.extra.wrapping_add(entry + 1).read() }.cast_const().cast::<u8>();
            let value = |&(offset, size): &(usize, usize)| bytes(buffer.wrapping_add(offset).cast(), size);
            return Some(layout.iter().map(value).collect());
        }
    }
    None
}

/// Whether the driver knows memory at `address`.
fn is_memory(address: u64) -> bool {
    let mut kind = 0u32;
    let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    // SAFETY: the driver writes one integer, and looks at the address without touching what is there.
    let answer = unsafe { sys::cuPointerGetAttribute((&raw mut kind).cast(), attribute, address) };
    answer == sys::CUresult::CUDA_SUCCESS && kind != 0
}

fn kind_name(kind: u32) -> &'static str {
    match kind {
        3 => "a call of a host function",
        4 => "a child graph",
        5 => "empty",
        6 => "a wait for an event",
        7 => "a record of an event",
        8 => "a signal of an external semaphore",
        9 => "a wait for an external semaphore",
        10 => "an allocation of memory",
        11 => "a release of memory",
        12 => "a batch of memory operations",
        13 => "conditional",
        _ => "of a kind that this release does not know",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_hold_what_lies_whole_in_one_of_them() {
        let spans = Spans::new([(1000, 100), (1100, 50)]);
        assert!(spans.hold(1000, 100) && spans.hold(1099, 1) && spans.hold(1120, 30));
        assert!(!spans.hold(999, 1) && !spans.hold(1000, 101) && !spans.hold(1090, 20));
        assert!(!spans.hold(u64::MAX, 1) && !spans.hold(1000, u64::MAX));
        // The end of a span is an address in it: kernels are given ends.
        assert!(spans.hold(1150, 0) && !spans.hold(1151, 0));
    }

    #[test]
    fn parameters_are_read_from_pointers_and_from_a_buffer() {
        let layout = [(0, 8), (8, 4), (16, 8)];
        let mut words = [7u64, 9, u64::MAX];
        let mut pointers = words.each_mut().map(|word| std::ptr::from_mut(word).cast::<c_void>());
        let mut parameters = sys::CUDA_KERNEL_NODE_PARAMS {
            func: std::ptr::null_mut(),
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 1,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            kernelParams: pointers.as_mut_ptr(),
            extra: std::ptr::null_mut(),
            kern: std::ptr::null_mut(),
            ctx: std::ptr::null_mut(),
        };
        let expected = vec![7u64.to_le_bytes().to_vec(), 9u32.to_le_bytes().to_vec(), vec![255; 8]];
        assert_eq!(values_of(&parameters, &layout), Some(expected.clone()));

        let (mut size, mut buffer) = (24usize, [7u64, 9, u64::MAX]);
        let name = std::ptr::without_provenance_mut::<c_void>;
        let mut extra = [
            name(2),
            std::ptr::from_mut(&mut size).cast(),
            name(EXTRA_BUFFER),
            buffer.as_mut_ptr().cast(),
            name(EXTRA_END),
        ];
        parameters.kernelParams = std::ptr::null_mut();
        parameters.extra = extra.as_mut_ptr();
        assert_eq!(values_of(&parameters, &layout), Some(expected));
        extra[2] = name(EXTRA_END);
        parameters.extra = extra.as_mut_ptr();
        assert_eq!(values_of(&parameters, &layout), None);
        parameters.extra = std::ptr::null_mut();
        assert_eq!(values_of(&parameters, &layout), None);
        assert_eq!(values_of(&parameters, &[]), Some(vec![]));
    }
}
