"""Captured programs: what was recorded is what Python runs, bits depend on nothing that they must not, and nothing that
is not recorded passes.
"""

import numpy as np
import pytest
import torch
from torch import nn

from ignition.components.token_state import begin_prefill
from ignition.devices.host.compile import compile_trunk
from ignition.devices.host.memory import HostMemory
from ignition.devices.host.record import ProgramRecorder, UnrecordedOperatorError, replay, run_every, run_none
from ignition.errors import PreparationError
from ignition.export.fixture import first_difference, run_fixture
from ignition.kernels.host import entries
from ignition.preparation.driver import Driver
from ignition.preparation.machine import LocalMachine
from ignition.preparation.storage import Storage
from tests.preparation.tiny_session import VARIANT
from tests.recipes.tiny_checkpoints import canonical_model

PROMPT = np.random.default_rng(3).integers(0, 320, 101)


def replaying(session):
    """A machine that makes the recorded calls and nothing else, on memory as a loader gives it."""
    session.clear_state()
    programs = {program.plan.name: replay(program.nodes) for program in session.programs}
    return LocalMachine(session.state.buffers, programs, {"rows": session.state.rows, "pages": session.state.pages})


def start(session):
    """A driver on a replaying machine."""
    return Driver(replaying(session), session.driver_limits())


def logits(driver, lane=0):
    """A lane's logits of the last launch."""
    values = np.frombuffer(driver.machine.read("logits"), np.float32)
    return torch.tensor(values.reshape(driver.limits.lanes, -1)[lane])


def test_recorded_calls_leave_the_bits_that_the_python_run_leaves(captured):
    captured.clear_state()
    python = run_fixture(captured.captured_machine(), captured.driver_limits())
    recorded = run_fixture(replaying(captured), captured.driver_limits())
    assert first_difference(python, recorded) is None
    launched = {step.program for step in python}
    assert launched >= {program.plan.name for program in captured.programs}


def test_a_chunk_gives_the_same_bits_at_every_capacity_and_split(captured):
    driver = start(captured)
    whole = driver.admit(0, PROMPT)
    driver.prefill(whole, 101, sample=True)
    expected = logits(driver)
    for slot, split in ((1, (64, 37)), (2, (1, 63, 37)), (3, (33, 5, 63))):
        request = driver.admit(slot, PROMPT)
        for index, count in enumerate(split):
            driver.prefill(request, count, capacity=128 if slot == 3 else None, sample=index == len(split) - 1)
        assert torch.equal(logits(driver), expected), split


def test_a_decode_step_gives_the_same_bits_in_any_lane_and_company(captured):
    driver = start(captured)
    requests = [driver.admit(slot, PROMPT, seed=7) for slot in range(4)]
    for request in requests:
        driver.prefill(request, 101, sample=True)
    driver.decode([requests[0]])
    expected = logits(driver)
    driver.decode([requests[1], requests[2]])
    assert torch.equal(logits(driver, 0), expected)
    assert torch.equal(logits(driver, 1), expected)
    # Another history in lane 0, an empty lane 2.
    driver.decode([requests[0], None, None, requests[3]])
    assert torch.equal(logits(driver, 3), expected)
    assert not torch.equal(logits(driver, 0), expected)


def test_a_decoded_token_has_the_bits_of_a_prefilled_one(captured):
    driver = start(captured)
    prompt = driver.admit(0, PROMPT[:100], logprobs=0)
    driver.prefill(prompt, 100, sample=True)
    token = int(driver.completion()[16])
    driver.decode([prompt])
    decoded = logits(driver)
    longer = driver.admit(1, [*PROMPT[:100], token])
    driver.prefill(longer, 101, sample=True)
    assert torch.equal(logits(driver), decoded)


def test_logits_are_those_of_transformers_but_for_rounding(captured):
    """Against the same weights in float64: ours may err 1.25 times as much as Transformers in BF16 does."""
    driver = start(captured)
    driver.prefill(driver.admit(2, PROMPT), 101, sample=True)
    canonical = canonical_model(VARIANT)
    tokens = torch.tensor(PROMPT)[None]
    with torch.no_grad():
        eager = canonical(tokens).logits[0, -1].double()
        exact = canonical.double()(tokens).logits[0, -1]
    error = (logits(driver).double() - exact).norm() / exact.norm()
    assert error <= 1.25 * (eager - exact).norm() / exact.norm()


def test_pages_are_touched_by_attention_and_state_copies_alone(captured):
    """A copy of the pages inside the compiled forward would be as large as memory allows at serving."""
    pages = captured.storage.pages
    symbols = {
        node.symbol
        for program in captured.programs
        for node in program.nodes
        if any(pages.contains(word) for word in node.arguments)
    }
    assert symbols == {"flare_kv_write", "flare_attention", "flare_restore", "flare_snapshot"}


def test_scratch_is_reused_within_a_program(captured):
    """Without reuse three layers would take their sum; what lives at one time is about one layer's."""
    largest = next(program for program in captured.programs if program.plan.name == "prefill.128")
    scratch = captured.storage.scratch
    outputs = {word for node in largest.nodes for word in node.arguments if scratch.contains(word)}
    calls = sum(any(scratch.contains(word) for word in node.arguments) for node in largest.nodes)
    assert len(outputs) < calls


def test_programs_bind_what_they_use_and_cost_something(captured):
    by_name = {program.plan.name: program for program in captured.programs}
    assert {"prefill_command", "prefill_tokens", "page_table", "completion", "frame"} <= set(
        by_name["prefill.64"].bindings
    )
    assert "page_table" not in by_name["resume.1"].bindings
    assert "state_command" in by_name["snapshot"].bindings
    assert all(program.cost_ms > 0 for program in captured.programs)


def test_an_operator_that_no_entry_stands_for_is_refused_by_name(captured):
    left, right = torch.ones(4, 4), torch.ones(4, 4)
    with pytest.raises(UnrecordedOperatorError, match="aten::mm"):
        captured.device.recorder.run(lambda: torch.mm(left, right), runs=run_every)


def test_a_forward_that_falls_back_to_aten_is_refused_by_name(captured):
    class Fallback(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(16, 16, dtype=torch.bfloat16), requires_grad=False)

        def forward(self, tokens, positions, token_slots):
            return (tokens[..., None].expand(-1, -1, 16).to(torch.bfloat16)) @ self.weight

    trunk = compile_trunk(Fallback(), hidden=16, tier=captured.device.builder.tier)

    def program():
        batch = begin_prefill(captured.state, tokens=4)
        trunk(batch.tokens, batch.positions, batch.token_slots)

    with pytest.raises(UnrecordedOperatorError, match="aten::mm"):
        captured.device.recorder.run(program, runs=run_none)


def test_a_tensor_outside_the_regions_is_refused():
    storage = Storage(HostMemory, base=0x4000_0000_0000)
    recorder, unplaced = ProgramRecorder(storage), torch.zeros(8)
    with pytest.raises(PreparationError, match="argument 0 of flare_reset .* no prepared region"):
        recorder.run(lambda: entries.call("flare_reset", unplaced), runs=run_none)
    storage.close()
