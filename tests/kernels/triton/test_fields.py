"""The kernels' constants are the contract's and the host's."""

import re
from pathlib import Path

from triton.language import constexpr

from ignition.export import core_pb2
from ignition.kernels.triton import fields

OPERATORS = Path(__file__).parents[3] / "ignition" / "kernels" / "host" / "operators.h"
PREFIXES = {
    "RequestField": ("REQUEST_FIELD_", ""), "RequestParameter": ("REQUEST_PARAMETER_", ""),
    "PrefillField": ("PREFILL_FIELD_", "PREFILL_"), "StateField": ("STATE_FIELD_", "STATE_"),
    "CompletionField": ("COMPLETION_FIELD_", "COMPLETION_"), "CompletionStatus": ("COMPLETION_STATUS_", "STATUS_"),
    "Finish": ("FINISH_", "FINISH_"), "OperationFamily": ("OPERATION_FAMILY_", "FAMILY_"),
}  # fmt: skip
LENGTHS = {"REQUEST_FIELDS": 16, "REQUEST_PARAMETERS": 8, "COMPLETION_FIELDS": 16}


def test_constants_are_the_contracts():
    """Every one is an enum's value under its prefix here, a field of the lane record, or a record's length."""
    expected = dict(LENGTHS)
    for enum, (prefix, own) in PREFIXES.items():
        for name, value in getattr(core_pb2, enum).items():
            assert name.startswith(prefix)
            expected[own + name.removeprefix(prefix)] = value
    lanes = re.search(r"enum LaneField : int64_t \{ ([^}]*) \}", OPERATORS.read_text())
    assert lanes is not None
    expected |= {name: i for i, name in enumerate(lanes[1].split(", "))}
    mirrored = {name: value.value for name, value in vars(fields).items() if isinstance(value, constexpr)}
    assert len(mirrored) > 40
    assert mirrored == {name: expected[name] for name in mirrored}
