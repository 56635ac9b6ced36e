"""Clients that ask for streams and stop reading: their requests end, and nobody else's answer suffers."""

import httpx

from scripts.server import Server
from scripts.slow_reader import ask

CLIENTS = 40
# Its text fills every buffer on the way to a client that does not read, and the stream begins with it.
ECHOED = " responsibility" * 1500
UNREAD = {"prompt": ECHOED, "echo": True, "stream": True, "max_tokens": 4, "ignore_eos": True, "top_k": 1}
READ = {"prompt": "Once upon a time", "stream": True, "max_tokens": 24, "ignore_eos": True, "top_k": 1}
COMPLETIONS = "/v1/completions"


def test_forty_clients_that_stop_reading(server: Server, wait_until_idle) -> None:
    """Their requests are generated to nobody and give slots and pages back, while their connections still wait."""
    before = wait_until_idle(server)
    alone = httpx.post(f"{server.url}{COMPLETIONS}", json=READ, timeout=60).text
    clients = [ask(server.port, COMPLETIONS, UNREAD) for _ in range(CLIENTS)]
    among = httpx.post(f"{server.url}{COMPLETIONS}", json=READ, timeout=300).text
    after = wait_until_idle(server, timeout_s=300)
    assert texts(among) == texts(alone) != []
    assert among.endswith("data: [DONE]\n\n")
    assert after["requests_finished"] - before["requests_finished"] == CLIENTS + 2
    assert after["requests_failed"] == before["requests_failed"]
    # One that reads on after all has missed nothing.
    late, *gone = clients
    for client in gone:
        client.close()
    late.settimeout(60)
    received = bytearray()
    while b"[DONE]" not in received:
        received += late.recv(1 << 16)
    late.close()
    assert ECHOED.encode() in received


def texts(stream: str) -> list[str]:
    """The events of a stream without the ids and times that differ from one request to the next."""
    return [line.partition('"choices":')[2] for line in stream.splitlines() if line.startswith("data: {")]
