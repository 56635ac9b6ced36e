"""The memory budget: too little to start, enough for short requests alone, and what an idle server holds."""

import math
import re
from pathlib import Path

import httpx

CHAT = "/v1/chat/completions"
UNITS = {"KiB": 1 / 1024, "MiB": 1, "GiB": 1024}


def needed_mib(said: str) -> int:
    """What a refused server said that one request takes, in MiB rounded up."""
    value, unit = re.search(r"takes ([\d.]+) (KiB|MiB|GiB)", said).groups()
    return math.ceil((float(value) + 0.1) * UNITS[unit])


def test_a_budget_that_holds_no_request_is_refused(refused, core: Path) -> None:
    said = refused(core, "--memory", "1MiB")
    assert "--memory" in said
    assert needed_mib(said) > 100


def test_a_request_larger_than_the_page_pool_is_refused(refused, start_server, core: Path, wait_until_idle) -> None:
    server = start_server("--memory", f"{needed_mib(refused(core, '--memory', '1MiB'))}MiB")
    pages = wait_until_idle(server)["pages_max"]
    long = {"messages": [{"role": "user", "content": "one " * (64 * pages + 64)}], "max_tokens": 4}
    response = httpx.post(f"{server.url}{CHAT}", json=long, timeout=60)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert "pages" in error["message"]
    assert "--memory" in error["message"]

    short = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
    response = httpx.post(f"{server.url}{CHAT}", json=short, timeout=60)
    assert response.status_code == 200, response.text
    wait_until_idle(server)
