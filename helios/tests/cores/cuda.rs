//! Cores for CUDA: what a contract may claim of launches, copies, fills and edges, and how everything else is refused.
//!
//! The modules of these cores are no machine code, so they open and are not loaded.

use helios::core::contract::{EdgePort, Node};
use helios::core::{Core, CoreError, proto};
use helios::memory::{LoadError, MemoryOptions, load};
use proto::node::Action;

use crate::support::TinyCore;

const BASE: u64 = 0x2000_0000_0000;
const BLOCK_BYTES: u64 = 1 << 28;

fn at(region: u64) -> u64 {
    BASE + region * BLOCK_BYTES
}

fn extent(x: u32, y: u32, z: u32) -> Option<proto::Extent3> {
    Some(proto::Extent3 { x, y, z })
}

fn launch() -> proto::Launch {
    proto::Launch {
        grid: extent(4, 2, 1),
        block: extent(128, 1, 1),
        parameters: vec![0; 12],
        parameter_bytes: vec![8, 4],
        ..Default::default()
    }
}

fn node(action: Action) -> proto::Node {
    proto::Node { action: Some(action), ..Default::default() }
}

/// The tiny core, its programs made of two launches, a copy and a fill each.
pub fn core() -> TinyCore {
    let mut core = TinyCore::new();
    let contract = &mut core.contract;
    contract.identity.as_mut().unwrap().device = Some(proto::identity::Device::Cuda(proto::CudaDevice {
        compute_major: 9,
        compute_minor: 0,
        multiprocessors: 132,
    }));
    for (index, region) in (0u64..).zip(&mut contract.regions) {
        region.address = at(index);
    }
    contract.modules[0].format = proto::ModuleFormat::Cubin as i32;
    contract.kernels[1].max_dynamic_shared_bytes = 200 << 10;
    for program in &mut contract.programs {
        program.nodes = vec![
            node(Action::Launch(launch())),
            node(Action::Launch(launch())),
            node(Action::Copy(proto::Copy { destination: at(2), source: at(0), bytes: 64 })),
            node(Action::Fill(proto::Fill {
                destination: at(2) + 64,
                value: 7,
                element_bytes: 4,
                elements: 16,
            })),
        ];
        program.edges = vec![
            proto::Edge { from: 0, to: 1, from_port: 1, r#type: 1, to_port: 0 },
            proto::Edge { from: 1, to: 2, ..Default::default() },
            proto::Edge { from: 1, to: 3, ..Default::default() },
        ];
    }
    core
}

fn open(core: &TinyCore) -> Result<Core, CoreError> {
    let folder = tempfile::tempdir().unwrap();
    core.write(folder.path());
    Core::open(folder.path())
}

#[track_caller]
fn check(change: impl FnOnce(&mut proto::PreparedContract), expected: &str) {
    let mut core = core();
    change(&mut core.contract);
    let error = open(&core).unwrap_err().to_string();
    assert!(error.contains(expected), "`{error}` should contain `{expected}`");
}

#[track_caller]
fn check_launch(change: impl FnOnce(&mut proto::Launch), expected: &str) {
    let mut launch = launch();
    change(&mut launch);
    let nodes = vec![node(Action::Launch(launch))];
    check(
        |contract| {
            contract.programs[3].edges.clear();
            contract.programs[3].nodes = nodes;
        },
        expected,
    );
}

#[test]
fn what_a_graph_carries_is_bound() {
    let mut core = core();
    core.contract.programs[3].nodes[1] = node(Action::Launch(proto::Launch {
        dynamic_shared_bytes: 48 << 10,
        cooperative: true,
        priority: -3,
        cluster: extent(2, 1, 1),
        preferred_cluster: extent(4, 2, 1),
        cluster_scheduling: proto::ClusterScheduling::LoadBalancing as i32,
        memory_sync_domain: proto::MemorySyncDomain::Remote as i32,
        memory_sync_domain_map: Some(proto::MemorySyncDomainMap { default_domain: 0, remote_domain: 1 }),
        access_window: Some(proto::AccessWindow {
            address: at(0),
            bytes: 8192,
            hit_ratio: 0.5,
            hit: proto::AccessProperty::Persisting as i32,
            miss: proto::AccessProperty::Streaming as i32,
        }),
        nvlink_centric_scheduling: true,
        ..launch()
    }));
    let contract = open(&core).unwrap().contract;
    let program = &contract.programs[3];
    let Node::Launch(launch) = &program.nodes[1] else { panic!("{:?}", program.nodes[1]) };
    assert_eq!((launch.grid.count(), launch.block.x, launch.priority), (8, 128, -3));
    assert_eq!(launch.preferred_cluster.unwrap().count(), 8);
    assert_eq!(launch.memory_sync_domain_map, Some([0, 1]));
    assert!(launch.cooperative && launch.remote_memory_sync_domain && launch.nvlink_centric_scheduling);
    let ports: Vec<EdgePort> = program.edges.iter().map(|edge| edge.port).collect();
    assert_eq!(ports, [EdgePort::Trigger, EdgePort::End, EdgePort::End]);
    assert_eq!(contract.kernels[1].function.max_dynamic_shared_bytes, 200 << 10);
}

#[test]
fn the_device_and_its_code_are_checked() {
    let device = |major, minor, count| {
        move |contract: &mut proto::PreparedContract| {
            contract.identity.as_mut().unwrap().device =
                Some(proto::identity::Device::Cuda(proto::CudaDevice {
                    compute_major: major,
                    compute_minor: minor,
                    multiprocessors: count,
                }));
        }
    };
    check(device(0, 0, 132), "identity.cuda.compute_major is 0");
    check(device(9, 10, 132), "identity.cuda.compute_minor is 10");
    check(device(9, 0, 0), "identity.cuda.multiprocessors is 0");
    check(
        |contract| contract.modules[0].format = proto::ModuleFormat::Elf as i32,
        "modules[0].format is Elf, and the core's device takes Cubin",
    );
    check(|contract| contract.kernels[2].symbol = "test_add".to_owned(), "kernels[2] repeats `test_add`");
    check(
        |contract| contract.kernels[2].preferred_carveout = Some(101),
        "kernels[2].preferred_carveout is 101",
    );
    check(
        |contract| contract.kernels[2].max_dynamic_shared_bytes = 2 << 20,
        "kernels[2].max_dynamic_shared_bytes is 2097152",
    );
    check(|contract| contract.regions[2].address = 0x1000_0000_0000, "regions[2].address is 0x100000000000");
}

#[test]
fn nodes_are_those_of_their_device() {
    check(
        |contract| contract.programs[3].nodes[0].action = None,
        "programs[3].nodes[0] is no launch, copy or fill",
    );
    check(|contract| contract.programs[3].nodes[0].arguments.push(1), "nodes[0].arguments are for a call");
    check(|contract| contract.programs[3].nodes[0].kernel = 4, "nodes[0].kernel is 4, and there are 4");
    let mut host = TinyCore::new();
    host.contract.programs[3].nodes[0].action = Some(Action::Launch(launch()));
    let error = open(&host).unwrap_err().to_string();
    assert!(error.contains("programs[3].nodes[0] is for CUDA, and the core is for the host"), "{error}");
}

#[test]
fn launches_are_checked() {
    check_launch(|launch| launch.grid = None, "programs[3].nodes[0].launch.grid is missing");
    check_launch(|launch| launch.grid = extent(0, 1, 1), "launch.grid.x is 0");
    check_launch(|launch| launch.grid = extent(1, 65_536, 1), "launch.grid.y is 65536");
    check_launch(|launch| launch.block = extent(1, 0, 1), "launch.block.y is 0");
    check_launch(|launch| launch.block = extent(32, 1, 65), "launch.block.z is 65");
    check_launch(|launch| launch.block = extent(64, 32, 1), "launch.block's threads is 2048");
    check_launch(
        |launch| launch.dynamic_shared_bytes = (48 << 10) + 1,
        "launch.dynamic_shared_bytes is 49153 and must lie in 0..=49152",
    );
    check_launch(|launch| launch.parameter_bytes = vec![8, 5], "launch.parameter_bytes are 13 together");
    check_launch(
        |launch| launch.parameter_bytes = vec![8, 4, 0],
        "launch.parameter_bytes are 12 together or",
    );
    check_launch(|launch| launch.parameters = vec![0; 40_000], "launch.parameters's length is 40000");
    check_launch(
        |launch| launch.cluster = extent(3, 1, 1),
        "launch.cluster does not divide the launch's grid",
    );
    check_launch(|launch| launch.cluster = extent(2, 0, 1), "launch.cluster.y is 0");
    check_launch(
        |launch| {
            launch.grid = extent(64, 1, 1);
            launch.cluster = extent(64, 1, 1);
        },
        "launch.cluster.x is 64",
    );
    check_launch(
        |launch| launch.preferred_cluster = extent(2, 1, 1),
        "launch.preferred_cluster is no multiple of the launch's cluster",
    );
    check_launch(|launch| launch.cluster_scheduling = 3, "launch.cluster_scheduling is 3");
    check_launch(|launch| launch.memory_sync_domain = 2, "launch.memory_sync_domain is 2");
    let window = proto::AccessWindow { address: at(0), bytes: 4096, ..Default::default() };
    check_launch(
        |launch| launch.access_window = Some(proto::AccessWindow { bytes: 9000, ..window }),
        "launch.access_window is 0x200000000000, and 9000 bytes from there are none or lie in no region",
    );
    check_launch(
        |launch| launch.access_window = Some(proto::AccessWindow { hit_ratio: f32::NAN, ..window }),
        "launch.access_window.hit_ratio is NaN",
    );
    check_launch(
        |launch| launch.access_window = Some(proto::AccessWindow { miss: 3, ..window }),
        "launch.access_window.miss is 3",
    );
}

#[test]
fn copies_and_fills_stay_in_their_regions() {
    let copy = |destination, source, bytes| {
        move |contract: &mut proto::PreparedContract| {
            contract.programs[3].nodes[2] = node(Action::Copy(proto::Copy { destination, source, bytes }));
        }
    };
    check(copy(at(2), at(0) + 8190, 4), "nodes[2].copy.source is 0x200000001ffe, and 4 bytes from there");
    check(copy(at(2) + 4095, at(0), 2), "nodes[2].copy.destination is 0x200020000fff");
    check(copy(at(2), u64::MAX, 2), "nodes[2].copy.source is 0xffffffffffffffff");
    check(copy(at(2), at(0), 0), "nodes[2].copy.source is 0x200000000000, and 0 bytes");
    check(
        copy(at(0), at(2), 8),
        "copy.destination is 0x200000000000 in region `weights`, which programs only read",
    );
    check(copy(at(2), at(2) + 8, 16), "nodes[2].copy overlaps itself");
    check(
        copy(at(1), at(0), 8),
        "is 0x200010000000 in the buffer of VALUE_SOURCE_FRAME, which programs only read",
    );
    let fill = |destination, element_bytes, elements| {
        move |contract: &mut proto::PreparedContract| {
            let fill = proto::Fill { destination, value: 0, element_bytes, elements };
            contract.programs[3].nodes[3] = node(Action::Fill(fill));
        }
    };
    check(fill(at(2), 3, 1), "nodes[3].fill.element_bytes is 3");
    check(
        fill(at(2) + 2, 4, 1),
        "nodes[3].fill.element_bytes is 4, which is none of 1, 2 and 4 or does not divide",
    );
    check(fill(at(2), 4, 1025), "nodes[3].fill.destination is 0x200020000000, and 4100 bytes");
    check(fill(at(2), 4, u64::MAX), "nodes[3].fill.destination");
    check(fill(at(2), 1, 0), "and 0 bytes from there are none");
}

#[test]
fn edges_go_forward_and_name_ports_that_are() {
    let edge = |from, to, r#type, from_port, to_port| {
        move |contract: &mut proto::PreparedContract| {
            contract.programs[3].edges[0] = proto::Edge { from, to, from_port, r#type, to_port };
        }
    };
    check(edge(0, 4, 0, 0, 0), "edges[0].to is 4, and there are 4");
    check(edge(2, 1, 0, 0, 0), "edges[0] leads from node 2 back to node 1");
    check(edge(0, 1, 2, 0, 0), "edges[0] has type 2, from_port 0 and to_port 0");
    check(edge(0, 1, 1, 0, 0), "edges[0] has type 1, from_port 0");
    check(edge(0, 1, 1, 3, 0), "edges[0] has type 1, from_port 3");
    check(edge(0, 1, 0, 0, 1), "edges[0] has type 0, from_port 0 and to_port 1");
    check(edge(0, 2, 1, 1, 0), "edges[0] has type 1, from_port 1 and to_port 0");
}

/// Wherever this runs: no device has that compute capability.
#[test]
fn a_core_for_a_device_that_is_not_here_is_one_clear_error() {
    let mut core = core();
    core.contract.identity.as_mut().unwrap().device =
        Some(proto::identity::Device::Cuda(proto::CudaDevice {
            compute_major: 99,
            compute_minor: 9,
            multiprocessors: 1,
        }));
    let folder = tempfile::tempdir().unwrap();
    core.write(folder.path());
    let core = Core::open(folder.path()).unwrap();
    let Err(error) = load(core, &MemoryOptions::default(), &mut |_| ()) else { panic!("it loaded") };
    assert!(matches!(error, LoadError::Core(CoreError::WrongDevice { .. })), "{error}");
    let message = error.to_string();
    assert!(message.contains("prepared for a CUDA device of compute capability 99.9"), "{message}");
}
