"""Captured graphs in the contract's words, on graphs made by hand: no device is needed."""

from dataclasses import dataclass, field

from ignition.devices.cuda.graphs import addresses_in, encode_graphs
from ignition.export import core_pb2

IMAGES = [b"unused", b"cubin of norms", b"cubin of products", b"cubin of norms"]


@dataclass
class Graph:
    """As Heliopause gives one."""

    kernels: list[bytes] = field(default_factory=list)
    nodes: list[bytes] = field(default_factory=list)
    edges: list[bytes] = field(default_factory=list)

    def kernel(self, module, symbol, **attributes):
        self.kernels.append(core_pb2.Kernel(module=module, symbol=symbol, **attributes).SerializeToString())
        return len(self.kernels) - 1

    def launch(self, kernel, *parameters):
        one = core_pb2.Extent3(x=1, y=1, z=1)
        launch = core_pb2.Launch(
            grid=one,
            block=core_pb2.Extent3(x=128, y=1, z=1),
            parameters=b"".join(parameters),
            parameter_bytes=[len(parameter) for parameter in parameters],
            priority=-3,
        )
        self.nodes.append(core_pb2.Node(kernel=kernel, launch=launch).SerializeToString())

    def edge(self, source, target, **ports):
        message = core_pb2.Edge(to=target, **ports)
        setattr(message, "from", source)
        self.edges.append(message.SerializeToString())


def pointer(address):
    return address.to_bytes(8, "little")


def two_graphs():
    first, second = Graph(), Graph()
    norm, product = first.kernel(1, "norm"), first.kernel(2, "kernel_0", max_dynamic_shared_bytes=70000)
    first.launch(norm, pointer(0x2000_0000_0040), (7).to_bytes(4, "little"))
    first.launch(product, pointer(0x2000_0000_0080))
    first.edge(0, 1, from_port=1, type=1)
    # The same functions in another order, one from a second load of the same image, one set to more memory.
    other = second.kernel(2, "kernel_0", max_dynamic_shared_bytes=90000, non_portable_cluster=True)
    again = second.kernel(3, "norm", preferred_carveout=50)
    same_name = second.kernel(1, "kernel_0")
    for kernel in (other, again, same_name):
        second.launch(kernel, pointer(0x2000_0000_0100))
    return first, second


def test_functions_are_kept_once_by_the_content_of_their_module_and_their_name():
    encoded = encode_graphs(two_graphs(), IMAGES)
    assert encoded.images == [b"cubin of norms", b"cubin of products"]
    assert [(kernel.module, kernel.symbol) for kernel in encoded.kernels] == [
        *((0, "norm"), (1, "kernel_0"), (0, "kernel_0"))
    ]
    assert [[node.kernel for node in nodes] for nodes in encoded.nodes] == [[0, 1], [1, 0, 2]]
    assert {module.format for module in encoded.modules} == {core_pb2.MODULE_FORMAT_CUBIN}
    assert len({module.name for module in encoded.modules}) == 2


def test_a_function_keeps_what_serves_every_capture():
    norm, product, other = encode_graphs(two_graphs(), IMAGES).kernels
    assert (product.max_dynamic_shared_bytes, product.non_portable_cluster) == (90000, True)
    assert norm.preferred_carveout == 50
    assert not other.HasField("preferred_carveout")


def test_launches_and_edges_are_as_they_were_captured():
    encoded = encode_graphs(two_graphs(), IMAGES)
    launch = encoded.nodes[0][0].launch
    assert (launch.block.x, launch.priority, list(launch.parameter_bytes)) == (128, -3, [8, 4])
    assert launch.parameters == pointer(0x2000_0000_0040) + b"\x07\0\0\0"
    (edge,) = encoded.edges[0]
    assert (getattr(edge, "from"), edge.to, edge.from_port, edge.type) == (0, 1, 1, 1)
    assert encoded.edges[1] == []


def test_addresses_are_found_in_parameters_and_their_fields_and_in_copies_and_fills():
    graph = Graph()
    structure = (5).to_bytes(8, "little") + pointer(0x2100_0000_0000) + b"\1\2\3\4"
    graph.launch(0, (9).to_bytes(4, "little"), pointer(0x2000_0000_0040), structure)
    copy = core_pb2.Copy(destination=0x2200_0000_0000, source=0x2200_0000_1000, bytes=64)
    fill = core_pb2.Fill(destination=0x2300_0000_0000, element_bytes=4, elements=8)
    graph.nodes += [core_pb2.Node(copy=copy).SerializeToString(), core_pb2.Node(fill=fill).SerializeToString()]
    assert addresses_in(graph) == {
        *(5, 0x2000_0000_0040, 0x2100_0000_0000, 0x2200_0000_0000, 0x2200_0000_1000, 0x2300_0000_0000)
    }
