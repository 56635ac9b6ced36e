"""`GET /metrics` of a real server: the numbers move by what was asked of it, and the text is what Prometheus reads."""

import re
import time
from typing import Any

import httpx
import pytest

from scripts.server import Server

PROMPT = "The lighthouse keeper counted the ships that passed at night, and wrote their names into a book."
SAMPLE = re.compile(r"(?P<name>[a-z_]+)(?:\{(?P<labels>[^}]*)\})? (?P<value>[0-9.e+-]+|\+Inf)")


@pytest.fixture
def idle(start_server) -> Server:
    return start_server()


def scrape(server: Server) -> dict[str, float]:
    """Every sample by its name and labels, as they are written."""
    reply = httpx.get(f"{server.url}/metrics", timeout=10)
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples: dict[str, float] = {}
    for line in reply.text.splitlines():
        if line.startswith("# "):
            assert re.fullmatch(r"# (HELP [a-z_]+ .+|TYPE [a-z_]+ (counter|gauge|histogram))", line)
            continue
        sample, value = line.rsplit(" ", 1)
        assert SAMPLE.fullmatch(line), line
        assert sample not in samples
        samples[sample] = float(value)
    return samples


def settled(server: Server, *, ended: int) -> dict[str, float]:
    """The samples once so many requests have ended and the model thread has published it."""
    deadline = time.monotonic() + 30
    while True:
        samples = scrape(server)
        outcomes = sum(value for name, value in samples.items() if name.startswith("flare_requests_total"))
        if outcomes == ended and samples["flare_slots_free"] == samples["flare_slots_max"]:
            return samples
        assert time.monotonic() < deadline, samples
        time.sleep(0.02)


def complete(server: Server, **fields: Any) -> dict[str, Any]:
    request = {"prompt": PROMPT, "max_tokens": 6, "top_k": 1, "ignore_eos": True, **fields}
    reply = httpx.post(f"{server.url}/v1/completions", json=request, timeout=60)
    assert reply.status_code == 200, reply.text
    body: dict[str, Any] = reply.json()
    return body


def test_a_fresh_server_has_counted_nothing(idle: Server) -> None:
    samples = scrape(idle)
    model = httpx.get(f"{idle.url}/v1/models").json()["data"][0]["id"]
    version = httpx.get(idle.url).json()["version"]
    assert samples[f'flare_build_info{{version="{version}",model="{model}"}}'] == 1
    counted = {name: value for name, value in samples.items() if re.search(r"_(total|count|sum|bucket)\b", name)}
    assert len(counted) > 100
    assert not any(counted.values())
    assert samples["flare_pages_free"] == samples["flare_pages_max"] > 0


def test_the_numbers_are_those_of_the_requests(idle: Server) -> None:
    started = time.monotonic()
    answers = [complete(idle), complete(idle), complete(idle, n=2)]
    took_s = time.monotonic() - started
    samples = settled(idle, ended=4)
    prompt = answers[0]["usage"]["prompt_tokens"]
    cached = [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers]
    assert cached[:2] == [0, prompt], "the second request starts from the first one's checkpoint"

    assert samples['flare_requests_total{outcome="finished"}'] == 4
    for histogram in (
        "flare_request_queue_time_seconds",
        "flare_time_to_first_token_seconds",
        "flare_request_duration_seconds",
        "flare_request_prompt_tokens",
        "flare_request_cached_tokens",
        "flare_request_generated_tokens",
    ):
        assert samples[f"{histogram}_count"] == samples[f'{histogram}_bucket{{le="+Inf"}}'] == 4
    assert samples["flare_request_prompt_tokens_sum"] == 4 * prompt
    assert samples['flare_prompt_tokens_total{source="computed"}'] == prompt
    assert samples['flare_prompt_tokens_total{source="cache"}'] == 3 * prompt
    assert samples["flare_request_cached_tokens_sum"] == 3 * prompt
    assert samples["flare_generated_tokens_total"] == samples["flare_request_generated_tokens_sum"] == 4 * 6
    assert samples["flare_inter_token_time_seconds_count"] == 4 * 5
    # The first three requests end one after another, the last two at one time.
    assert samples["flare_request_duration_seconds_sum"] <= 2 * took_s
    steps = {name: value for name, value in samples.items() if name.startswith("flare_step_duration_seconds_sum")}
    assert 0 < sum(steps.values()) <= took_s
    assert samples['flare_step_duration_seconds_count{operation="initialize"}'] == 4
    assert samples['flare_step_duration_seconds_count{operation="resume"}'] == 3
    assert samples['flare_step_duration_seconds_count{operation="prefill"}'] >= 1


def test_a_client_that_leaves_is_counted_as_cancelled(idle: Server) -> None:
    request = {"prompt": PROMPT, "max_tokens": 2000, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{idle.url}/v1/completions", json=request, timeout=60) as response:
        lines = response.iter_lines()  # Dropping it would close the connection.
        next(lines)
        assert scrape(idle)["flare_requests_running"] == 1
    samples = settled(idle, ended=1)
    assert samples['flare_requests_total{outcome="cancelled"}'] == 1
    assert samples["flare_request_duration_seconds_count"] == 1
    assert 1 <= samples["flare_request_generated_tokens_sum"] < 2000


def test_health_and_metrics_say_the_same(idle: Server) -> None:
    complete(idle)
    samples = settled(idle, ended=1)
    engine = idle.health()["engine"]
    for name in ("slots_free", "slots_max", "pages_free", "pages_cached", "snapshots_free", "snapshots_cached"):
        assert samples[f"flare_{name}"] == engine[name], name
