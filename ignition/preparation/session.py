"""The preparation of one model on a device: declare, prepare, bind, record.

`RecordedPreparationSession` owns a device's regions from the first weight to the exported core. Its steps run in one
order, each once: place, declare, compile, tune, capture. Addresses never change once given.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from ignition.components.attention import PagedCache, attach_cache
from ignition.components.state import COMPLETION_FIELDS, TOKEN_CAPACITY, RequestState, StateLayout, ValueBuffers
from ignition.components.weights import WeightTarget, place_weights
from ignition.devices.device import Device
from ignition.errors import UsageError
from ignition.preparation.capture import (
    Program,
    ProgramPlan,
    Recording,
    decode_capacities,
    plan_programs,
    prefill_capacities,
)
from ignition.preparation.costs import measure_costs_ms
from ignition.preparation.driver import DriverLimits
from ignition.preparation.machine import LocalMachine
from ignition.preparation.model import PAGE_TOKENS, PREFILL_TOKENS_MIN, PreparationOptions, PreparedModel
from ignition.preparation.report import ReportBuilder
from ignition.preparation.storage import round_up

SNAPSHOT_ROWS = 4
"""Snapshot rows that preparation backs, for verification."""


@dataclass(frozen=True)
class Capacities:
    """What a core is prepared for."""

    requests_max: int
    lanes_max: int
    context_tokens_max: int
    prefill: list[int]

    @property
    def prefill_tokens_max(self) -> int:
        """The largest chunk."""
        return self.prefill[-1]

    @classmethod
    def of(cls, options: PreparationOptions, model: PreparedModel, device: Device) -> "Capacities":
        """Options held against the model and the device. Raises `UsageError`."""
        context = options.context_tokens_max or model.geometry.context_tokens_max
        if not 0 < context <= model.geometry.context_tokens_max:
            raise UsageError(
                f"--context {context} is not within 1 and {model.geometry.context_tokens_max}, what {model.name} takes"
            )
        if options.requests_max < 1:
            raise UsageError(f"--max-concurrency {options.requests_max} is below 1")
        asked = device.prefill_tokens_default if options.prefill_tokens_max is None else options.prefill_tokens_max
        chunk = min(asked, round_up(context, PREFILL_TOKENS_MIN))
        if chunk < PREFILL_TOKENS_MIN or chunk % PREFILL_TOKENS_MIN:
            raise UsageError(f"--prefill-chunk-size {chunk} is not a multiple of {PREFILL_TOKENS_MIN}")
        lanes = decode_capacities(options.requests_max)[-1]
        prefill = prefill_capacities(chunk, smallest=device.prefill_tokens_min)
        return cls(options.requests_max, lanes, context, prefill)

    @property
    def fixture_pages(self) -> int:
        """Pages that preparation backs: one long history and a few short ones."""
        return -(-self.prefill_tokens_max // PAGE_TOKENS) + 2 * self.requests_max + 8


class RecordedPreparationSession:
    """See the module."""

    model: PreparedModel
    capacities: Capacities
    state: RequestState
    plans: list[ProgramPlan]
    programs: list[Program]

    def __init__(self, options: PreparationOptions, device: Device) -> None:
        self.options = options
        self.device = device
        self.storage = device.storage
        self.report = ReportBuilder()

    def place(self, model: PreparedModel) -> dict[str, WeightTarget]:
        """Give every weight its storage; targets by the name that the canonical checkpoint uses."""
        targets = place_weights(model.trunk, self.device.store)
        targets.update(place_weights(model.vocabulary, self.device.store, "lm_head."))
        self.model = model
        return targets

    def declare(self) -> None:
        """Lay out state and value buffers, and attach the pages to the attention modules."""
        model, storage = self.model, self.storage
        self.capacities = capacities = Capacities.of(self.options, model, self.device)
        geometry = model.geometry
        layout = StateLayout.causal(
            layers=geometry.layers,
            key_value_heads=geometry.key_value_heads,
            head_dim=geometry.head_dim,
            hidden=geometry.hidden,
            page_tokens=PAGE_TOKENS,
        )
        buffers = ValueBuffers.allocate(
            storage.io.allocate,
            slots=capacities.requests_max,
            lanes=capacities.lanes_max,
            vocabulary=geometry.vocabulary,
            context_tokens_max=capacities.context_tokens_max,
            prefill_tokens_max=capacities.prefill_tokens_max,
            page_tokens=PAGE_TOKENS,
        )
        rows = 1 + capacities.requests_max * layout.rows_per_slot + SNAPSHOT_ROWS
        eos = model.frontend.eos_tokens
        self.state = RequestState(
            layout=layout,
            buffers=buffers,
            rows=storage.rows.allocate("rows", (rows * layout.row_stride,), torch.uint8),
            pages=storage.pages.allocate("pages", (capacities.fixture_pages * layout.page_stride,), torch.uint8),
            eos_tokens=storage.weights.allocate("constant.eos_tokens", (len(eos),), torch.int64),
            requests_max=capacities.requests_max,
            vocabulary=geometry.vocabulary,
            hidden=geometry.hidden,
            context_tokens_max=capacities.context_tokens_max,
        )
        self.state.eos_tokens.copy_(torch.tensor(eos, dtype=torch.int64))
        for layer, attention in enumerate(model.attentions):
            attach_cache(
                attention,
                PagedCache(
                    page_table=buffers.page_table,
                    pages=self.state.pages,
                    page_stride=layout.page_stride,
                    key_offset=layout.page_offset(f"layer.{layer}.key"),
                    value_offset=layout.page_offset(f"layer.{layer}.value"),
                    context_tokens=capacities.context_tokens_max,
                ),
            )

    def compile(self) -> None:
        """Compile the trunk and plan the programs."""
        rows = [*self.capacities.prefill, *decode_capacities(self.capacities.requests_max)]
        trunk = self.device.compile(self.model.trunk, hidden=self.model.geometry.hidden, rows=rows)
        self.plans = plan_programs(self.state, trunk, self.model.vocabulary, prefill_capacities=self.capacities.prefill)

    def tune(self) -> None:
        """Select among candidates by measuring each at every capacity."""
        self.device.tune(self.plans, model_fingerprint=self.model.fingerprint)

    def capture(self) -> None:
        """Record every program and measure its cost."""
        recordings = {plan.name: self.device.capture(plan) for plan in self.plans}
        machine = self._machine({name: recording.launch for name, recording in recordings.items()})
        costs = measure_costs_ms(machine, self.driver_limits(), recordings, self.device.elapsed_ms)
        self.programs = [
            Program(plan, recordings[plan.name], self._bindings(recordings[plan.name]), costs[plan.name])
            for plan in self.plans
        ]
        for section, content in self.device.notes().items():
            self.report.note(section, content)
        self.report.note("program_nodes", {name: len(recording.nodes) for name, recording in recordings.items()})

    def captured_machine(self) -> LocalMachine:
        """A machine that computes what the exported programs have to."""
        return self._machine({program.plan.name: self.device.check(program) for program in self.programs})

    def clear_state(self) -> None:
        """Zero everything that a loader would zero."""
        for region in (self.storage.io, self.storage.rows, self.storage.pages):
            region.clear()

    def driver_limits(self) -> DriverLimits:
        """Sizes for a driver on this session's memory."""
        capacities = self.capacities
        return DriverLimits(
            slots=capacities.requests_max,
            lanes=capacities.lanes_max,
            vocabulary=self.state.vocabulary,
            context_tokens_max=capacities.context_tokens_max,
            page_tokens=PAGE_TOKENS,
            pages=capacities.fixture_pages,
            prefill_capacities=tuple(capacities.prefill),
            decode_capacities=tuple(decode_capacities(capacities.requests_max)),
            completion_fields=COMPLETION_FIELDS,
            token_capacity=TOKEN_CAPACITY,
        )

    def _machine(self, programs: Mapping[str, Callable[[], None]]) -> LocalMachine:
        return LocalMachine(self.state.buffers, programs, {"rows": self.state.rows, "pages": self.state.pages})

    def _bindings(self, recording: Recording) -> tuple[str, ...]:
        """The value sources that a recording points into."""
        return tuple(
            name
            for name, tensor in self.state.buffers.by_name().items()
            if any(tensor.data_ptr() <= word < tensor.data_ptr() + tensor.nbytes for word in recording.addresses)
        )

    def close(self) -> None:
        """Give the regions back. Tensors of the model have to be gone."""
        self.device.close()
