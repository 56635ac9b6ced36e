"""What launches begin with, commit and maintain: exact copies, and no trace of a rejected command."""

import re

import numpy as np
import pytest
from library import PROTO, SOURCES, bf16
from sampling import INACTIVE, LIVE, REJECTED, F

H, W, C, V, CONTEXT, PAGE_TOKENS, FRAME_LANES, TOKENS = 24, 2, 3, 50, 256, 64, 2, 8
CONSUMED_OFFSET, HIDDEN_OFFSET, PARTIAL_OFFSET, PAGE_BYTES = 0, 64, 128, 320
ROW_STRIDE = 512
INITIALIZE, RESTORE, SNAPSHOT, RESET = 4, 5, 6, 7


class State:
    """Slots, rows and pages with random contents."""

    def __init__(self, kernels, seed=0):
        """Slot 1 holds epoch 9."""
        rng = np.random.default_rng(seed)
        self.kernels, self.rng = kernels, rng
        self.rows = rng.integers(0, 256, (1 + C * W + 4) * ROW_STRIDE).astype(np.uint8)
        self.pages = rng.integers(0, 256, 5 * PAGE_BYTES).astype(np.uint8)
        self.fields = np.zeros((C, 16), np.int64)
        self.parameters = np.zeros((C, 8), np.float32)
        self.histogram = rng.integers(0, 9, (C, V)).astype(np.int32)
        self.bias_tokens, self.bias_values = np.zeros((C, 4), np.int64), np.zeros((C, 4), np.float32)
        self.frame = np.array([1])
        self.completion = np.full((2, FRAME_LANES, 16 + TOKENS), -7, np.int64)
        self.put(1, epoch=9, pending=-1)

    def put(self, slot, **fields):
        """Sets fields of a slot."""
        for name, value in fields.items():
            self.fields[slot, F[name]] = value

    def row(self, index):
        """The bytes of a row."""
        return self.rows[index * ROW_STRIDE : (index + 1) * ROW_STRIDE]

    def hidden(self, index):
        """The hidden vector of a row."""
        return self.row(index)[HIDDEN_OFFSET : HIDDEN_OFFSET + 2 * H].view(np.uint16)

    def page(self, index):
        """The bytes of a page."""
        return self.pages[index * PAGE_BYTES : (index + 1) * PAGE_BYTES]

    def everything(self):
        """A copy of all that a command may change, but records."""
        requests = (self.fields, self.parameters, self.histogram, self.bias_tokens, self.bias_values)
        return [array.copy() for array in (self.rows, self.pages, *requests)]

    def unchanged(self, before):
        """Whether nothing changed since `everything`."""
        return all(np.array_equal(a, b) for a, b in zip(self.everything(), before, strict=True))

    def record(self):
        """Lane 0's record; no other record may be touched."""
        assert (self.completion[0] == -7).all() and (self.completion[1, 1:] == -7).all()
        return self.completion[1, 0]

    def transfer(self, name, slot, epoch, row, consumed, page):
        """A restore or snapshot; gives the record."""
        self.kernels.call(
            name, np.array([slot, epoch, row, consumed, page, 0, 0, 0]), self.fields, self.rows, self.pages, self.frame,
            self.completion, C, H, ROW_STRIDE, W, CONSUMED_OFFSET, HIDDEN_OFFSET, PARTIAL_OFFSET, PAGE_BYTES,
            PAGE_TOKENS, FRAME_LANES, TOKENS,
        )  # fmt: skip
        return self.record()

    def initialize(self, slot, count, fields, prompt, bias=()):
        """An admission; gives the record."""
        tokens, values = np.zeros(4, np.int64), np.zeros(4, np.float32)
        for i, (token, value) in enumerate(bias):
            tokens[i], values[i] = token, value
        prompt = np.append(prompt, np.full(CONTEXT - len(prompt), 1 << 40)).astype(np.int64)
        self.kernels.call(
            "initialize", np.array([slot, count, 0, 0, 0, 0, 0, 0]), fields, np.arange(8, dtype=np.float32), prompt,
            tokens, values, self.fields, self.parameters, self.histogram, self.bias_tokens, self.bias_values,
            self.frame, self.completion, C, V, 4, CONTEXT, FRAME_LANES, TOKENS,
        )  # fmt: skip
        return self.record()


def admission(**fields):
    """REQUEST_FIELDS of an admission."""
    made = np.zeros(16, np.int64)
    for name, value in ({"epoch": 77, "pending": -1, "seed": -5, "output_limit": 12} | fields).items():
        made[F[name]] = value
    return made


def test_enums_are_those_of_the_contract():
    """fields.h mirrors core.proto: every value that either defines of a mirrored enum, by name."""

    def enums(text):
        found = {}
        for name, body in re.findall(r"enum (\w+)(?: : int64_t)? \{(.*?)\}", text, re.DOTALL):
            found[name] = dict(re.findall(r"(\w+) = (\d+)[;,]", re.sub(r"//.*", "", body)))
        return found

    contract, mirror = enums(PROTO.read_text()), enums((SOURCES / "fields.h").read_text())
    assert len(mirror) == 8
    for name, values in mirror.items():
        assert values == contract[name], name


def test_admission_sets_the_slot_and_counts_the_prompt_once(kernels):
    """Other slots keep theirs."""
    state = State(kernels)
    before = state.everything()
    fields = admission(bias_count=2)
    record = state.initialize(2, 5, fields, [3, 49, 3, 3, 0], [(7, 1.5), (49, -100.0)])
    assert record[:12].tolist() == [77, 2, LIVE, INITIALIZE, 0, 0, 0, 0, -1, 0, 0, -1]
    assert np.array_equal(state.fields[2], fields)
    assert np.array_equal(state.parameters[2], np.arange(8))
    assert np.array_equal(state.histogram[2], np.bincount([3, 49, 3, 3, 0], minlength=V))
    assert state.bias_tokens[2, :2].tolist() == [7, 49] and state.bias_values[2, :2].tolist() == [1.5, -100]
    for now, then in zip(state.everything()[2:], before[2:], strict=True):
        assert np.array_equal(now[:2], then[:2])
    assert np.array_equal(state.rows, before[0]) and np.array_equal(state.pages, before[1])


@pytest.mark.parametrize(
    ("slot", "count", "fields", "prompt", "bias"),
    [
        (-1, 1, {}, [1], []),
        (C, 1, {}, [1], []),
        (1, CONTEXT + 1, {}, [1], []),
        (1, -1, {}, [1], []),
        (1, 2, {}, [1, V], []),
        (1, 2, {}, [1, -1], []),
        (1, 1, {"epoch": 0}, [1], []),
        (1, 1, {"bias_count": 5}, [1], []),
        (1, 1, {"bias_count": 1}, [1], [(V, 1.0)]),
    ],
)
def test_a_bad_admission_is_rejected_and_leaves_no_trace(kernels, slot, count, fields, prompt, bias):
    """Out of range in any part."""
    state = State(kernels)
    before = state.everything()
    record = state.initialize(slot, count, admission(**fields), prompt, bias)
    assert record[:4].tolist() == [0, slot, REJECTED, INITIALIZE]
    assert state.unchanged(before)


@pytest.mark.parametrize(("consumed", "page"), [(130, 3), (128, -1), (1, 0)])
def test_a_restored_snapshot_is_the_state_that_was_frozen(kernels, consumed, page):
    """Count, hidden vector and partial page, byte for byte, into another slot; nothing else changes."""
    state = State(kernels)
    state.put(1, consumed=consumed)
    row = 1 + C * W + 2
    before = state.everything()
    record = state.transfer("snapshot", 1, 9, row, consumed, page)
    assert record[:12].tolist() == [9, 1, LIVE, SNAPSHOT, consumed, 0, 0, 0, -1, 0, row, -1]
    expected = before[0][row * ROW_STRIDE : (row + 1) * ROW_STRIDE].copy()
    expected[CONSUMED_OFFSET : CONSUMED_OFFSET + 8] = np.frombuffer(np.int64(consumed).tobytes(), np.uint8)
    expected[HIDDEN_OFFSET : HIDDEN_OFFSET + 2 * H] = state.hidden(1 + W).view(np.uint8)
    if page >= 0:
        expected[PARTIAL_OFFSET : PARTIAL_OFFSET + PAGE_BYTES] = state.page(page)
    assert np.array_equal(state.row(row), expected)
    others = np.r_[0 : row * ROW_STRIDE, (row + 1) * ROW_STRIDE : len(state.rows)]
    assert np.array_equal(state.rows[others], before[0][others])
    assert all(np.array_equal(a, b) for a, b in zip(state.everything()[1:], before[1:], strict=True))

    state.put(2, epoch=10, pending=-1)
    before = state.everything()
    record = state.transfer("restore", 2, 10, row, consumed, -1 if page < 0 else 4)
    assert record[:12].tolist() == [10, 2, LIVE, RESTORE, consumed, 0, 0, 0, -1, 0, row, -1]
    assert state.fields[2, F["consumed"]] == consumed
    assert np.array_equal(state.hidden(1 + 2 * W), state.hidden(1 + W))
    if page >= 0:
        assert np.array_equal(state.page(4), state.page(page))
    before[0][(1 + 2 * W) * ROW_STRIDE + HIDDEN_OFFSET :][: 2 * H] = state.hidden(1 + W).view(np.uint8)
    before[1][4 * PAGE_BYTES :] = state.page(page) if page >= 0 else before[1][4 * PAGE_BYTES :]
    before[2][2, F["consumed"]] = consumed
    assert state.unchanged(before)


FROZEN = 1 + C * W


@pytest.mark.parametrize("name", ["snapshot", "restore"])
@pytest.mark.parametrize(
    "command",
    [
        (1, 8, FROZEN, 70, 2),  # Another epoch.
        (1, 0, FROZEN, 70, 2),
        (0, 0, FROZEN, 70, 2),  # An empty slot.
        (-1, 9, FROZEN, 70, 2),
        (C, 9, FROZEN, 70, 2),
        (1, 9, FROZEN, 71, 2),  # Another count.
        (1, 9, FROZEN, 0, -1),
        (1, 9, FROZEN, 70, -1),  # A partial page that is not given.
        (1, 9, FROZEN - 1, 70, 2),  # A live row.
        (1, 9, 0, 70, 2),
    ],
)
def test_a_transfer_that_does_not_match_is_rejected_and_leaves_no_trace(kernels, name, command):
    """Slot 1 is ready for the transfer of 70 tokens with a partial page in all but the command."""
    state = State(kernels)
    state.put(1, consumed=70 if name == "snapshot" else 0)
    state.row(FROZEN)[:8] = np.frombuffer(np.int64(70).tobytes(), np.uint8)
    before = state.everything()
    assert state.transfer(name, *command)[2] == REJECTED
    assert state.unchanged(before)
    assert state.transfer(name, 1, 9, FROZEN, 70, 2)[2] == LIVE


def test_restore_needs_a_slot_that_has_consumed_nothing(kernels):
    """Neither a started nor a sampled request."""
    for fields in ({"consumed": 70}, {"pending": 3}):
        state = State(kernels)
        state.put(1, **fields)
        state.row(FROZEN)[:8] = np.frombuffer(np.int64(70).tobytes(), np.uint8)
        before = state.everything()
        assert state.transfer("restore", 1, 9, FROZEN, 70, 2)[2] == REJECTED
        assert state.unchanged(before)


def test_reset_empties_a_slot_of_its_epoch_alone(kernels):
    """Another epoch changes nothing."""
    state = State(kernels)
    state.put(1, consumed=70, seed=3, generated=4)
    before = state.everything()
    for epoch, status in ((8, REJECTED), (9, LIVE)):
        command = np.array([1, epoch, 0, 0, 0, 0, 0, 0])
        state.kernels.call("reset", command, state.fields, state.frame, state.completion, C, FRAME_LANES, TOKENS)
        assert state.record()[:4].tolist() == [epoch, 1, status, RESET]
        assert (status == LIVE) or state.unchanged(before)
    assert state.fields[1].tolist() == [0, 0, 0, 0, -1] + [0] * 11


def begin_decode(state, slots, epochs, masked=None):
    """Tokens, positions, token slots and lanes of a decode."""
    b = len(slots)
    out = [np.full(b, -9) for _ in range(3)] + [np.full((b, 4), -9)]
    masked = np.zeros(b, np.int64) if masked is None else masked
    state.kernels.call("begin_decode", np.array(slots), np.array(epochs), masked, state.fields, *out, b, C, V, CONTEXT)
    return out


def test_a_decode_begins_with_the_pending_tokens_of_live_lanes(kernels):
    """Live, empty, of another epoch, without a pending token, finished, at the context's end, out of range."""
    state = State(kernels)
    state.put(1, consumed=40, pending=17)
    tokens, positions, slots, lanes = begin_decode(state, [1, -1, 1, C], [9, 0, 8, 9], np.array([1, 0, 0, 0]))
    assert (tokens.tolist(), positions.tolist(), slots.tolist()) == ([17, 0, 0, 0], [40, 0, 0, 0], [1, -1, -1, -1])
    assert lanes.tolist() == [[1, LIVE, 1, 1], [-1, INACTIVE, 0, 0], [1, REJECTED, 0, 0], [C, REJECTED, 0, 0]]
    for fields, status in [
        ({"pending": -1}, REJECTED), ({"pending": V}, REJECTED), ({"consumed": CONTEXT}, REJECTED),
        ({"finished": 1}, INACTIVE),
    ]:  # fmt: skip
        state = State(kernels)
        state.put(1, **({"consumed": 40, "pending": 17} | fields))
        tokens, positions, slots, lanes = begin_decode(state, [1], [9])
        assert [tokens[0], positions[0], slots[0], lanes[0, 1], lanes[0, 2]] == [0, 0, -1, status, 0]


def test_a_decode_commits_its_live_lanes_alone(kernels):
    """One token consumed and the hidden vector saved; nothing of a rejected or an empty lane."""
    state = State(kernels)
    state.put(1, consumed=40, pending=17)
    lanes = np.array([[0, REJECTED, 0, 0], [1, LIVE, 1, 0], [-1, INACTIVE, 0, 0]])
    hidden = bf16(state.rng.standard_normal((3, H)))
    expected = state.everything()
    kernels.call("commit_decode", hidden, lanes, state.fields, state.rows, 3, H, ROW_STRIDE, W, HIDDEN_OFFSET)
    expected[0][(1 + W) * ROW_STRIDE + HIDDEN_OFFSET :][: 2 * H] = hidden[1].view(np.uint8)
    expected[2][1, F["consumed"]] = 41
    assert state.unchanged(expected)


def begin_prefill(state, command, tokens, t=8):
    """Tokens, positions, token slots and the lane of a prefill of capacity t."""
    out = [np.full(t, -9) for _ in range(3)] + [np.full((1, 4), -9)]
    tokens = np.append(tokens, np.full(t, 1 << 40)).astype(np.int64)
    state.kernels.call("begin_prefill", np.array([*command, 0, 0]), tokens, state.fields, *out, t, C, V, CONTEXT)
    return out


@pytest.mark.parametrize("count", [1, 3, 8])
def test_a_prefill_consumes_its_chunk_and_pads_the_rest(kernels, count):
    """Positions go on from what was consumed; the last live row's hidden vector is saved and handed on."""
    state = State(kernels)
    state.put(1, consumed=100)
    command = [1, 9, 100, count, 1, 1]
    tokens, positions, slots, lanes = begin_prefill(state, command, np.arange(20, 20 + count))
    padding = 8 - count
    assert tokens.tolist() == [*range(20, 20 + count)] + [0] * padding
    assert positions.tolist() == [*range(100, 100 + count)] + [0] * padding
    assert slots.tolist() == [1] * count + [-1] * padding
    assert lanes.tolist() == [[1, LIVE, 1, 1]]
    hidden, h = bf16(state.rng.standard_normal((8, H))), np.full((1, H), 0xFFFF, np.uint16)
    expected = state.everything()
    arguments = (state.fields, state.rows, h, 8, H, ROW_STRIDE, W, HIDDEN_OFFSET)
    kernels.call("commit_prefill", hidden, np.array([*command, 0, 0]), lanes, *arguments)
    expected[0][(1 + W) * ROW_STRIDE + HIDDEN_OFFSET :][: 2 * H] = hidden[count - 1].view(np.uint8)
    expected[2][1, F["consumed"]] = 100 + count
    assert np.array_equal(h[0], hidden[count - 1]) and state.unchanged(expected)


@pytest.mark.parametrize(
    ("command", "tokens", "fields", "status"),
    [
        ([1, 8, 100, 2, 1, 0], [1, 2], {}, REJECTED),
        ([1, 9, 99, 2, 1, 0], [1, 2], {}, REJECTED),
        ([1, 9, 100, 0, 1, 0], [1, 2], {}, REJECTED),
        ([1, 9, 100, 9, 1, 0], [1] * 9, {}, REJECTED),
        ([1, 9, 100, 2, 1, 0], [1, V], {}, REJECTED),
        ([1, 9, 100, 2, 1, 0], [1, 2], {"pending": 4}, REJECTED),
        ([1, 9, CONTEXT - 1, 2, 1, 0], [1, 2], {"consumed": CONTEXT - 1}, REJECTED),
        ([1, 9, 100, 2, 1, 0], [1, 2], {"finished": 2}, INACTIVE),
        ([-1, 0, 0, 0, 0, 0], [], {}, INACTIVE),
    ],
)
def test_a_prefill_that_does_not_match_is_all_padding(kernels, command, tokens, fields, status):
    """And its commit changes nothing and hands on zeros."""
    state = State(kernels)
    state.put(1, **({"consumed": 100} | fields))
    expected = state.everything()
    ids, positions, slots, lanes = begin_prefill(state, command, tokens)
    assert not ids.any() and not positions.any() and (slots == -1).all()
    assert lanes[0, 1:3].tolist() == [status, 0]
    hidden, h = bf16(state.rng.standard_normal((8, H))), np.full((1, H), 0xFFFF, np.uint16)
    arguments = (state.fields, state.rows, h, 8, H, ROW_STRIDE, W, HIDDEN_OFFSET)
    kernels.call("commit_prefill", hidden, np.array([*command, 0, 0]), lanes, *arguments)
    assert not h.any() and state.unchanged(expected)


def test_a_resume_gathers_the_saved_hidden_vectors(kernels):
    """Of slots that consumed something and hold no pending token; other lanes get zeros."""
    state = State(kernels)
    state.put(1, consumed=5)
    state.put(0, epoch=3, consumed=0, pending=-1)
    state.put(2, epoch=4, consumed=6, pending=8)
    expected = state.everything()
    h, lanes = np.full((4, H), 0xFFFF, np.uint16), np.full((4, 4), -9)
    kernels.call(
        "begin_resume", np.array([2, 1, 0, -1]), np.array([4, 9, 3, 0]), np.array([0, 1, 0, 0]), state.fields,
        state.rows, h, lanes, 4, C, H, ROW_STRIDE, W, HIDDEN_OFFSET,
    )  # fmt: skip
    assert lanes.tolist() == [[2, REJECTED, 0, 0], [1, LIVE, 1, 1], [0, REJECTED, 0, 0], [-1, INACTIVE, 0, 0]]
    assert np.array_equal(h[1], state.hidden(1 + W)) and not h[[0, 2, 3]].any()
    assert state.unchanged(expected)
