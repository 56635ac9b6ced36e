//! Nodes and edges: calls for a host core; launches, copies and fills for a CUDA core.
//!
//! Addresses are checked where the contract says that a number is one. The parameters of a CUDA kernel are bytes of its own
//! layout, which only the kernel knows; they are trusted as its code is, and were checked where they were captured.

use super::super::contract::{
    AccessWindow, Buffer, ClusterScheduling, Copy, Edge, EdgePort, Extent3, Fill, Kernel, Launch, Node,
    Region, RegionBacking,
};
use super::super::{CoreError, proto};
use super::programs::Context;
use super::{counted, element, within};

const ARGUMENTS_MAX: usize = 256;
const PARAMETERS_MAX: usize = 4096;
/// What the driver takes for one launch.
const PARAMETER_BYTES_MAX: usize = 32_764;
const BLOCK_THREADS_MAX: u32 = 1024;
const CLUSTER_BLOCKS_MAX: u32 = 32;
/// What every kernel may have without asking for more.
const DYNAMIC_SHARED_BYTES_DEFAULT: u32 = 48 << 10;
/// More than any device has.
pub const SHARED_BYTES_MAX: u32 = 1 << 20;

pub fn bind_node(
    field: impl Fn() -> String,
    node: proto::Node,
    context: &Context<'_>,
) -> Result<Node, CoreError> {
    use proto::node::Action;
    let Some(action) = node.action else {
        if context.is_cuda {
            let reason = "is no launch, copy or fill, which the nodes of a CUDA core are";
            return Err(CoreError::contract(field(), reason));
        }
        return bind_call(field, node.kernel, node.arguments, context);
    };
    if !context.is_cuda {
        return Err(CoreError::contract(field(), "is for CUDA, and the core is for the host"));
    }
    if !node.arguments.is_empty() {
        return Err(CoreError::contract(
            format!("{}.arguments", field()),
            "are for a call, which this is not",
        ));
    }
    match action {
        Action::Launch(launch) => bind_launch(&field(), node.kernel, launch, context).map(Node::Launch),
        Action::Copy(copy) => bind_copy(&field(), &copy, context).map(Node::Copy),
        Action::Fill(fill) => bind_fill(&field(), &fill, context).map(Node::Fill),
    }
}

/// Nodes run in their order, so an edge that is given must agree with it. That leaves no cycles either.
pub fn bind_edges(
    field: &str,
    edges: &[proto::Edge],
    nodes: &[Node],
    is_cuda: bool,
) -> Result<Vec<Edge>, CoreError> {
    let bind_edge = |(index, edge): (usize, &proto::Edge)| {
        let field = format!("{field}.edges[{index}]");
        let from = element(&format!("{field}.from"), nodes, edge.from)?;
        let to = element(&format!("{field}.to"), nodes, edge.to)?;
        if edge.from >= edge.to {
            let reason = format!("leads from node {} back to node {}", edge.from, edge.to);
            return Err(CoreError::contract(field, reason));
        }
        let ports = (edge.r#type, edge.from_port, edge.to_port);
        let between_launches = matches!((from, to), (Node::Launch(_), Node::Launch(_)));
        let port = match ports {
            (0, 0, 0) => EdgePort::End,
            (1, 1, 0) if is_cuda && between_launches => EdgePort::Trigger,
            (1, 2, 0) if is_cuda && between_launches => EdgePort::Start,
            _ => {
                let reason = format!(
                    "has type {}, from_port {} and to_port {}, which go together nowhere or not between these nodes",
                    ports.0, ports.1, ports.2
                );
                return Err(CoreError::contract(field, reason));
            }
        };
        Ok(Edge { from: edge.from, to: edge.to, port })
    };
    edges.iter().enumerate().map(bind_edge).collect()
}

fn bind_call(
    field: impl Fn() -> String,
    kernel: u32,
    arguments: Vec<u64>,
    context: &Context<'_>,
) -> Result<Node, CoreError> {
    bound_kernel(&field, kernel, context)?;
    if arguments.len() > ARGUMENTS_MAX {
        let reason = format!("are {}, and {ARGUMENTS_MAX} are the limit", arguments.len());
        return Err(CoreError::contract(format!("{}.arguments", field()), reason));
    }
    for (index, &argument) in arguments.iter().enumerate() {
        if context.window.contains(&argument) && holder(context.regions, argument, 1).is_none() {
            let reason = format!("is address {argument:#x}, which lies in no region");
            return Err(CoreError::contract(format!("{}.arguments[{index}]", field()), reason));
        }
    }
    Ok(Node::Call { kernel, arguments })
}

fn bind_launch(
    field: &str,
    kernel: u32,
    launch: proto::Launch,
    context: &Context<'_>,
) -> Result<Launch, CoreError> {
    let function = bound_kernel(|| field.to_owned(), kernel, context)?.function;
    let grid = extent(&format!("{field}.launch.grid"), launch.grid, [i32::MAX as u32, 65_535, 65_535])?;
    let block = extent(&format!("{field}.launch.block"), launch.block, [1024, 1024, 64])?;
    within(&format!("{field}.launch.block's threads"), block.count(), 1..=u64::from(BLOCK_THREADS_MAX))?;
    let shared_max = function.max_dynamic_shared_bytes.max(DYNAMIC_SHARED_BYTES_DEFAULT);
    let shared = format!("{field}.launch.dynamic_shared_bytes");
    let dynamic_shared_bytes = within(&shared, launch.dynamic_shared_bytes, 0..=shared_max)?;
    check_parameters(field, &launch)?;
    let cluster = bind_cluster(&format!("{field}.launch.cluster"), launch.cluster, grid)?;
    let preferred = format!("{field}.launch.preferred_cluster");
    let preferred_cluster = bind_cluster(&preferred, launch.preferred_cluster, grid)?;
    if let Some(preferred_cluster) = preferred_cluster
        && !cluster.is_some_and(|cluster| preferred_cluster.is_multiple_of(cluster))
    {
        return Err(CoreError::contract(preferred, "is no multiple of the launch's cluster"));
    }
    let unknown = |name: &str, value: i32| {
        let reason = format!("is {value}, which this release does not know");
        CoreError::contract(format!("{field}.launch.{name}"), reason)
    };
    let scheduling = proto::ClusterScheduling::try_from(launch.cluster_scheduling)
        .map_err(|_| unknown("cluster_scheduling", launch.cluster_scheduling))?;
    let domain = proto::MemorySyncDomain::try_from(launch.memory_sync_domain)
        .map_err(|_| unknown("memory_sync_domain", launch.memory_sync_domain))?;
    let map = launch.memory_sync_domain_map.map(|map| {
        let domain = |name: &str, value| {
            within(&format!("{field}.launch.memory_sync_domain_map.{name}"), value, 0..=u32::from(u8::MAX))
        };
        Ok([domain("default_domain", map.default_domain)?, domain("remote_domain", map.remote_domain)?]
            .map(|value| u8::try_from(value).expect("`within` bounds it")))
    });
    let window = launch.access_window.map(|window| bind_window(field, &window, context.regions));
    Ok(Launch {
        kernel,
        grid,
        block,
        dynamic_shared_bytes,
        parameters: launch.parameters,
        parameter_bytes: launch.parameter_bytes,
        cooperative: launch.cooperative,
        priority: launch.priority,
        cluster,
        preferred_cluster,
        cluster_scheduling: match scheduling {
            proto::ClusterScheduling::Default => ClusterScheduling::Default,
            proto::ClusterScheduling::Spread => ClusterScheduling::Spread,
            proto::ClusterScheduling::LoadBalancing => ClusterScheduling::LoadBalancing,
        },
        remote_memory_sync_domain: domain == proto::MemorySyncDomain::Remote,
        memory_sync_domain_map: map.transpose()?,
        access_window: window.transpose()?,
        nvlink_centric_scheduling: launch.nvlink_centric_scheduling,
    })
}

fn check_parameters(field: &str, launch: &proto::Launch) -> Result<(), CoreError> {
    let sizes = format!("{field}.launch.parameter_bytes");
    counted(&sizes, &launch.parameter_bytes, 0..=PARAMETERS_MAX)?;
    counted(&format!("{field}.launch.parameters"), &launch.parameters, 0..=PARAMETER_BYTES_MAX)?;
    let total: u64 = launch.parameter_bytes.iter().map(|&bytes| u64::from(bytes)).sum();
    if launch.parameter_bytes.contains(&0) || total != launch.parameters.len() as u64 {
        let reason =
            format!("are {total} together or hold a zero, and there are {} bytes", launch.parameters.len());
        return Err(CoreError::contract(sizes, reason));
    }
    Ok(())
}

fn bind_cluster(
    field: &str,
    cluster: Option<proto::Extent3>,
    grid: Extent3,
) -> Result<Option<Extent3>, CoreError> {
    let Some(cluster) = cluster else { return Ok(None) };
    let cluster = extent(field, Some(cluster), [CLUSTER_BLOCKS_MAX; 3])?;
    within(&format!("{field}'s blocks"), cluster.count(), 1..=u64::from(CLUSTER_BLOCKS_MAX))?;
    if !grid.is_multiple_of(cluster) {
        return Err(CoreError::contract(field, "does not divide the launch's grid"));
    }
    Ok(Some(cluster))
}

fn bind_window(
    field: &str,
    window: &proto::AccessWindow,
    regions: &[Region],
) -> Result<AccessWindow, CoreError> {
    let field = format!("{field}.launch.access_window");
    inside(&field, regions, window.address, window.bytes)?;
    let property = |name: &str, value: i32| {
        proto::AccessProperty::try_from(value).map_err(|_| {
            let reason = format!("is {value}, which this release does not know");
            CoreError::contract(format!("{field}.{name}"), reason)
        })
    };
    Ok(AccessWindow {
        address: window.address,
        bytes: window.bytes,
        hit_ratio: within(&format!("{field}.hit_ratio"), window.hit_ratio, 0.0..=1.0)?,
        hit: property("hit", window.hit)?,
        miss: property("miss", window.miss)?,
    })
}

fn bind_copy(field: &str, copy: &proto::Copy, context: &Context<'_>) -> Result<Copy, CoreError> {
    inside(&format!("{field}.copy.source"), context.regions, copy.source, copy.bytes)?;
    writable(&format!("{field}.copy.destination"), context, copy.destination, copy.bytes)?;
    let apart = copy.source.abs_diff(copy.destination) >= copy.bytes;
    if !apart {
        return Err(CoreError::contract(format!("{field}.copy"), "overlaps itself"));
    }
    Ok(Copy { destination: copy.destination, source: copy.source, bytes: copy.bytes })
}

fn bind_fill(field: &str, fill: &proto::Fill, context: &Context<'_>) -> Result<Fill, CoreError> {
    let element_bytes = fill.element_bytes;
    if ![1, 2, 4].contains(&element_bytes) || !fill.destination.is_multiple_of(u64::from(element_bytes)) {
        let reason =
            format!("is {element_bytes}, which is none of 1, 2 and 4 or does not divide the address");
        return Err(CoreError::contract(format!("{field}.fill.element_bytes"), reason));
    }
    let bytes = fill.elements.saturating_mul(u64::from(element_bytes));
    writable(&format!("{field}.fill.destination"), context, fill.destination, bytes)?;
    Ok(Fill { destination: fill.destination, value: fill.value, element_bytes, elements: fill.elements })
}

fn bound_kernel<'a>(
    field: impl Fn() -> String,
    kernel: u32,
    context: &Context<'a>,
) -> Result<&'a Kernel, CoreError> {
    let found = usize::try_from(kernel).ok().and_then(|index| context.kernels.get(index));
    found.ok_or_else(|| {
        let reason = format!("is {kernel}, and there are {}", context.kernels.len());
        CoreError::contract(format!("{}.kernel", field()), reason)
    })
}

/// An extent that must be there, each of its sides within 1 and a maximum.
fn extent(field: &str, extent: Option<proto::Extent3>, maxima: [u32; 3]) -> Result<Extent3, CoreError> {
    let extent = super::present(field, extent)?;
    Ok(Extent3 {
        x: within(&format!("{field}.x"), extent.x, 1..=maxima[0])?,
        y: within(&format!("{field}.y"), extent.y, 1..=maxima[1])?,
        z: within(&format!("{field}.z"), extent.z, 1..=maxima[2])?,
    })
}

/// The region that holds the whole range.
fn holder(regions: &[Region], address: u64, bytes: u64) -> Option<&Region> {
    let end = address.checked_add(bytes)?;
    regions.iter().find(|region| region.address <= address && end <= region.address + region.bytes)
}

fn inside<'a>(field: &str, regions: &'a [Region], address: u64, bytes: u64) -> Result<&'a Region, CoreError> {
    holder(regions, address, bytes).filter(|_| bytes > 0).ok_or_else(|| {
        let reason = format!("is {address:#x}, and {bytes} bytes from there are none or lie in no region");
        CoreError::contract(field, reason)
    })
}

/// Checks that programs may write a range: it lies in a region that is no storage, and touches no buffer that is the
/// runtime's to write.
fn writable(field: &str, context: &Context<'_>, address: u64, bytes: u64) -> Result<(), CoreError> {
    let region = inside(field, context.regions, address, bytes)?;
    if region.backing == RegionBacking::Storage {
        let reason = format!("is {address:#x} in region `{}`, which programs only read", region.name);
        return Err(CoreError::contract(field, reason));
    }
    let touches = |buffer: &&Buffer| {
        buffer.source.is_uploaded()
            && buffer.address < address + bytes
            && address < buffer.address + buffer.bytes
    };
    if let Some(buffer) = context.buffers.iter().find(touches) {
        let reason = format!(
            "is {address:#x} in the buffer of {}, which programs only read",
            buffer.source.as_str_name()
        );
        return Err(CoreError::contract(field, reason));
    }
    Ok(())
}
