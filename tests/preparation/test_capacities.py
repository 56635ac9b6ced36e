"""Capacities follow from the options, and options that cannot be served are refused."""

import pytest

from ignition.preparation.capture import decode_capacities, prefill_capacities


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(64, [16, 32, 64]), (128, [16, 32, 64, 128]), (320, [16, 32, 64, 128, 256, 320])],
)
def test_prefill_capacities_are_powers_of_two_and_the_limit(limit, expected):
    assert prefill_capacities(limit) == expected


@pytest.mark.parametrize(
    ("requests", "expected"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 4]), (4, [1, 2, 4]), (5, [1, 2, 4, 8])]
)
def test_decode_capacities_reach_every_request(requests, expected):
    assert decode_capacities(requests) == expected
