"""Answers of a served model at temperature 1 have the form of their schema, or the schema is refused by its place.

`make test` asks for the schemas of `schemas.py`. FLARE_TEST_FULL=1 asks for all of the official test suite, twice, and
leaves a report in build/json-schema-report.json.
"""

import json
import os
from collections import Counter

import pytest

from scripts.server import Server
from scripts.smollm2 import ROOT
from tests.conformance.json_schema.judge import Verdict, judge_all, resolves
from tests.conformance.json_schema.oracle import is_supported, our_own_reason
from tests.conformance.json_schema.schemas import ANSWERED, REFUSED
from tests.conformance.json_schema.suite import Case, official_cases

IS_FULL = os.environ.get("FLARE_TEST_FULL") == "1"
REPORT = ROOT / "build" / "json-schema-report.json"


def test_our_own_schemas_are_answered_in_their_form(server: Server) -> None:
    cases = [Case(json.dumps(schema), "draft2020-12", schema) for schema in ANSWERED]
    verdicts = judge_all(server.url, cases, seed=1)
    assert [] == faults(verdicts)
    assert Counter(verdict.outcome for verdict in verdicts) == {"answered": len(ANSWERED)}


def test_what_cannot_be_enforced_is_refused_by_its_place(server: Server) -> None:
    cases = [Case(pointer, "draft2020-12", schema) for schema, pointer in REFUSED]
    assert all(resolves(case.schema, case.name) for case in cases)
    verdicts = judge_all(server.url, cases, seed=1)
    assert [] == faults(verdicts)
    assert {verdict.outcome for verdict in verdicts} == {"refused"}
    assert [verdict.place for verdict in verdicts] == [case.name for case in cases]


@pytest.mark.skipif(not IS_FULL, reason="FLARE_TEST_FULL=1 asks for the official suite's schemas")
@pytest.mark.timeout(3600)
def test_the_official_suites_schemas_are_answered_in_their_form_or_refused(server: Server) -> None:
    cases = official_cases()
    verdicts = [verdict for seed in (1, 2) for verdict in judge_all(server.url, cases, seed=seed)]
    REPORT.write_text(json.dumps(report(verdicts), indent=1) + "\n")
    assert [] == faults(verdicts)
    refused = {verdict.case.name: verdict for verdict in verdicts if verdict.outcome == "refused"}
    unjustified = [
        (name, verdict.detail)
        for name, verdict in refused.items()
        if is_supported(verdict.case.schema) and our_own_reason(verdict.detail) is None
    ]
    assert unjustified == []
    answered = {verdict.case.name for verdict in verdicts if verdict.outcome == "answered"}
    assert len(answered) >= 200
    assert sum(verdict.outcome == "unread" for verdict in verdicts) <= len(verdicts) / 50


def faults(verdicts: list[Verdict]) -> list[tuple[str, str, str]]:
    """What is wrong with which case."""
    return [(verdict.case.name, verdict.fault, verdict.detail) for verdict in verdicts if verdict.fault]


def report(verdicts: list[Verdict]) -> dict[str, object]:
    """How many schemas had which outcome, and what was cut or refused for what."""
    reasons = Counter(verdict.detail for verdict in verdicts if verdict.outcome == "refused")
    return {
        "schemas": len({verdict.case.name for verdict in verdicts}),
        "outcomes": Counter(verdict.outcome for verdict in verdicts),
        "unread": [(verdict.case.name, verdict.detail) for verdict in verdicts if verdict.outcome == "unread"],
        "cut": [(verdict.case.name, verdict.detail[-80:]) for verdict in verdicts if verdict.outcome == "cut"],
        "refused": dict(reasons.most_common()),
    }
