"""The memory budget: too little to start, enough for short requests alone, and what an idle server holds."""

from pathlib import Path

import httpx

CHAT = "/v1/chat/completions"


def test_a_budget_that_holds_no_request_is_refused(refused, smallest_mib: int, core: Path) -> None:
    assert smallest_mib > 100
    assert "--memory" in refused(core, "--memory", f"{smallest_mib - 2}MiB")


def test_a_request_larger_than_the_page_pool_is_refused(start_server, smallest_mib: int, wait_until_idle) -> None:
    server = start_server("--memory", f"{smallest_mib}MiB")
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
