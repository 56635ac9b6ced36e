"""Request state: the geometry of rows and pages, and the arrays that the runtime and the programs share.

Row 0 is null; slot s owns rows 1 + s*W to (s+1)*W; snapshots follow. A row holds what a checkpoint needs beside
complete pages. A page holds 64 tokens of every layer's keys and values. All offsets and strides are bytes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import torch

ROWS_PER_SLOT = 1
BIAS_ENTRIES_MAX = 300
LOGPROBS_MAX = 20
COMPLETION_FIELDS = 16
TOKEN_CAPACITY = 8
FRAMES = 2
SEGMENT_ALIGNMENT = 64
STRIDE_ALIGNMENT = 4096

Allocate = Callable[[str, Sequence[int], torch.dtype], torch.Tensor]


@dataclass(frozen=True)
class Segment:
    """A named range of a row or a page."""

    name: str
    offset: int
    size: int


@dataclass(frozen=True)
class StateLayout:
    """Where everything lies in a row and in a page."""

    row_segments: tuple[Segment, ...]
    row_stride: int
    page_segments: tuple[Segment, ...]
    page_stride: int
    page_tokens: int
    rows_per_slot: int = ROWS_PER_SLOT

    @classmethod
    def causal(
        cls, *, layers: int, key_value_heads: int, head_dim: int, hidden: int, page_tokens: int
    ) -> "StateLayout":
        """A model whose whole history is in pages: a row holds its count, last hidden vector and partial page."""
        bytes_each = 2 * page_tokens * key_value_heads * head_dim
        names = [f"layer.{layer}.{part}" for layer in range(layers) for part in ("key", "value")]
        page_segments, page_stride = lay_out([(name, bytes_each) for name in names])
        row_segments, row_stride = lay_out([("consumed", 8), ("hidden", 2 * hidden), ("partial_page", page_stride)])
        return cls(row_segments, row_stride, page_segments, page_stride, page_tokens)

    def row_offset(self, name: str) -> int:
        """Where a segment begins in a row."""
        return next(segment.offset for segment in self.row_segments if segment.name == name)

    def page_offset(self, name: str) -> int:
        """Where a segment begins in a page."""
        return next(segment.offset for segment in self.page_segments if segment.name == name)


def lay_out(sizes: Sequence[tuple[str, int]]) -> tuple[tuple[Segment, ...], int]:
    """Segments one after another, aligned, and the stride that holds them."""
    segments: list[Segment] = []
    end = 0
    for name, size in sizes:
        offset = -(-end // SEGMENT_ALIGNMENT) * SEGMENT_ALIGNMENT
        segments.append(Segment(name, offset, size))
        end = offset + size
    return tuple(segments), -(-end // STRIDE_ALIGNMENT) * STRIDE_ALIGNMENT


@dataclass(frozen=True)
class ValueBuffers:
    """The contract's value sources, each under its own name in lower case; core.proto gives meanings and shapes."""

    frame: torch.Tensor
    lane_slots: torch.Tensor
    lane_epochs: torch.Tensor
    lane_masked: torch.Tensor
    grammar_masks: torch.Tensor
    prefill_command: torch.Tensor
    prefill_tokens: torch.Tensor
    admission_command: torch.Tensor
    admission_fields: torch.Tensor
    admission_parameters: torch.Tensor
    admission_prompt: torch.Tensor
    admission_bias_tokens: torch.Tensor
    admission_bias_values: torch.Tensor
    state_command: torch.Tensor
    page_table: torch.Tensor
    request_fields: torch.Tensor
    request_parameters: torch.Tensor
    histogram: torch.Tensor
    bias_tokens: torch.Tensor
    bias_values: torch.Tensor
    completion: torch.Tensor
    logprob_tokens: torch.Tensor
    logprob_values: torch.Tensor
    logits: torch.Tensor

    @classmethod
    def allocate(
        cls,
        allocate: Allocate,
        *,
        slots: int,
        lanes: int,
        vocabulary: int,
        context_tokens_max: int,
        prefill_tokens_max: int,
        page_tokens: int,
    ) -> "ValueBuffers":
        """Take storage for every source; `lanes` is the largest decode capacity."""
        i64, i32, u32, f32 = torch.int64, torch.int32, torch.uint32, torch.float32
        shapes: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
            "frame": ((1,), i64),
            "lane_slots": ((lanes,), i64),
            "lane_epochs": ((lanes,), i64),
            "lane_masked": ((lanes,), i64),
            "grammar_masks": ((lanes, -(-vocabulary // 32)), u32),
            "prefill_command": ((8,), i64),
            "prefill_tokens": ((prefill_tokens_max,), i64),
            "admission_command": ((8,), i64),
            "admission_fields": ((16,), i64),
            "admission_parameters": ((8,), f32),
            "admission_prompt": ((context_tokens_max,), i64),
            "admission_bias_tokens": ((BIAS_ENTRIES_MAX,), i64),
            "admission_bias_values": ((BIAS_ENTRIES_MAX,), f32),
            "state_command": ((8,), i64),
            "page_table": ((slots, -(-context_tokens_max // page_tokens)), i32),
            "request_fields": ((slots, 16), i64),
            "request_parameters": ((slots, 8), f32),
            "histogram": ((slots, vocabulary), i32),
            "bias_tokens": ((slots, BIAS_ENTRIES_MAX), i64),
            "bias_values": ((slots, BIAS_ENTRIES_MAX), f32),
            "completion": ((FRAMES, lanes, COMPLETION_FIELDS + TOKEN_CAPACITY), i64),
            "logprob_tokens": ((FRAMES, lanes, LOGPROBS_MAX), i64),
            "logprob_values": ((FRAMES, lanes, 1 + LOGPROBS_MAX), f32),
            "logits": ((lanes, vocabulary), f32),
        }
        return cls(**{name: allocate(name, shape, dtype) for name, (shape, dtype) in shapes.items()})

    def by_name(self) -> dict[str, torch.Tensor]:
        """Every buffer by its source's name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class RequestState:
    """Everything that programs read and write beside weights and scratch."""

    layout: StateLayout
    buffers: ValueBuffers
    rows: torch.Tensor  # u8
    pages: torch.Tensor  # u8
    eos_tokens: torch.Tensor  # i64[eos_count]
    requests_max: int
    vocabulary: int
    hidden: int
    context_tokens_max: int
