"""`make demo`: prepares SmolLM2-135M-Instruct, serves it, asks one question and keeps serving until Ctrl-C.

With --once it ends after the answer, and no process stays behind. It exits with 0 when the model named Paris
and the server ended cleanly, with 1 otherwise.
"""

import argparse
import json
import signal
import socket
import subprocess
import sys
from types import FrameType

import openai

from scripts.server import Server, ServerFailed, binary, free_port, start_flare
from scripts.smollm2 import ROOT, ensure_core

_QUESTION = "What is the capital of France?"
_ANSWER = "Paris"
_PORT = 8080


def main() -> int:
    """Runs the demo; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--once", action="store_true", help="end after the answer")
    once = parser.parse_args().once
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        core = ensure_core(ROOT / "build" / "demo-core")
        with start_flare(binary("release"), core, port=_preferred_port()) as server:
            model = _ask(server.url)
            if not once:
                _keep_serving(server, model)
    except KeyboardInterrupt:
        return 130
    except (subprocess.CalledProcessError, ServerFailed, FileNotFoundError, openai.OpenAIError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    if server.process.returncode != 0:
        print(f"demo: flare ended with exit code {server.process.returncode}", file=sys.stderr)
        return 1
    return 0


def _ask(url: str) -> str:
    """Asks the question and prints the answer as it comes; returns the model's name."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
    model = client.models.list().data[0].id
    print(f"\n{_QUESTION}\n", flush=True)
    answer = ""
    with client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": _QUESTION}],
        max_tokens=64,
        stream=True,
        extra_body={"top_k": 1},
    ) as stream:
        for chunk in stream:
            text = chunk.choices[0].delta.content if chunk.choices else None
            if text:
                answer += text
                print(text, end="", flush=True)
    print("\n", flush=True)
    if _ANSWER not in answer:
        raise ServerFailed(f"the answer does not name {_ANSWER}")
    return model


def _keep_serving(server: Server, model: str) -> None:
    message = {"role": "user", "content": _QUESTION}
    body = json.dumps({"model": model, "messages": [message], "stream": True})
    print(f"Serving at {server.url}/v1 until Ctrl-C. Ask again:\n")
    print(
        f"  curl -N {server.url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'\n",
        flush=True,
    )
    try:
        code = server.process.wait()
    except KeyboardInterrupt:
        print("\nstopping", flush=True)
        return
    raise ServerFailed(f"flare ended with exit code {code}")


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    """The end of the demo, however it comes, is the end of its server."""
    raise KeyboardInterrupt


def _preferred_port() -> int:
    """Port 8080, or another one where something listens there already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", _PORT))
        except OSError:
            return free_port()
    return _PORT


if __name__ == "__main__":
    sys.exit(main())
