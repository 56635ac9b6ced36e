"""A compiled stack of layers, captured as one CUDA graph: what a real core is made of.

Inductor makes Triton kernels of it, copies, and matrix products of cuBLAS with clusters and programmatic launches. The
grammar masks are one number here, which is added to what the last layer gives.
"""

import torch

from tests.cuda.captured_core import MASKS, OWN, Regions, content, torch_pool

HIDDEN, INNER, LAYERS, VOCABULARY, TOKENS = 1024, 2816, 4, 32000, 4
BASE = 0x2000_0000_0000
IDS, OUT, LOGITS = OWN, OWN | 4096, 2 * OWN


class Block(torch.nn.Module):
    """A gated layer behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.RMSNorm(HIDDEN)
        self.gate = torch.nn.Linear(HIDDEN, INNER, bias=False)
        self.up = torch.nn.Linear(HIDDEN, INNER, bias=False)
        self.down = torch.nn.Linear(INNER, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        return x + self.down(torch.nn.functional.silu(self.gate(h)) * self.up(h))


class CapturedMlp:
    """The stack, its inputs and outputs in io, and its graph."""

    def __init__(self) -> None:
        self.regions = Regions(BASE)
        self.ids = self.regions.io_tensor(IDS, [TOKENS], torch.int64)
        self.masks = self.regions.io_tensor(MASKS, [1], torch.float32)
        self.out = self.regions.io_tensor(OUT, [TOKENS], torch.int64)
        self.logits = self.regions.io_tensor(LOGITS, [TOKENS, VOCABULARY], torch.float32)
        torch.manual_seed(0)
        self.weights_pool = torch_pool(self.regions.weights_pool)
        self.scratch_pool = torch_pool(self.regions.scratch_pool)
        with torch.cuda.use_mem_pool(self.weights_pool), torch.device("cuda"):
            self.layers = torch.nn.ModuleList(Block() for _ in range(LAYERS)).to(torch.bfloat16)
            self.embedding = torch.randn(VOCABULARY, HIDDEN, dtype=torch.bfloat16) * 0.1
        self.compiled = torch.compile(self.forward, fullgraph=True, dynamic=False)
        self.graph = self.capture()

    def forward(self, ids: torch.Tensor, masks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.embedding[ids]
        for layer in self.layers:
            x = layer(x)
        logits = ((x + masks).to(x.dtype) @ self.embedding.t()).float()
        return logits, logits.argmax(-1)

    def step(self) -> None:
        logits, tokens = self.compiled(self.ids, self.masks)
        self.logits.copy_(logits)
        self.out.copy_(tokens)

    @torch.no_grad()
    def capture(self) -> torch.cuda.CUDAGraph:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(graph, pool=self.scratch_pool.id):
            self.step()
        graph.instantiate()
        return graph

    def replay(self, ids: list[int], masks: float) -> bytes:
        """Tokens and logits, as torch's replay computes them."""
        self.ids.copy_(torch.tensor(ids))
        self.masks.fill_(masks)
        self.logits.fill_(-1)
        self.graph.replay()
        torch.cuda.synchronize()
        return content(self.out) + content(self.logits)
