"""Load generators of others, from PyPI, against `flare`: each measures it without an error. Numbers are not judged.

python -m tests.conformance.load_clients --core DIR --into DIR
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from safetensors import safe_open

from scripts.server import Server
from tests.conformance.harness import Options, Outcome, environment, options, report, version

_REQUESTS = 8
_OUTPUT_TOKENS = 8
_TIMEOUT_S = 600


def main() -> int:
    """Runs the generators one after the other."""
    where = options(__doc__)
    with where.serve() as server:
        outcomes = [*_guidellm(where, server), *_aiperf(where, server)]
    return report("load clients", outcomes, ())


def _guidellm(where: Options, server: Server) -> Iterator[Outcome]:
    into = _folder(where, "guidellm")
    bin_folder = environment(into, "guidellm")
    lines = [{"prompt": f"Say {i}.", "output_tokens_count": _OUTPUT_TOKENS} for i in range(_REQUESTS)]
    (into / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    results = into / "results.json"
    command = ["run", "--backend", f"kind=openai_http,target={server.url},model=any", "--profile", "kind=synchronous"]
    command += ["--constraint", f"kind=max_requests,count={_REQUESTS}"]
    command += ["--data", f"kind=json_file,path={into / 'data.jsonl'}", "--output", f"kind=json,path={results}"]
    failure = _run(into, [bin_folder / "guidellm", *command])
    if not failure:
        totals = json.loads(results.read_text())["benchmarks"][0]["metrics"]["request_totals"]
        failure = "" if totals["successful"] == _REQUESTS else f"requests: {totals}"
    yield Outcome(f"guidellm {version(bin_folder, 'guidellm')}", failure)


def _aiperf(where: Options, server: Server) -> Iterator[Outcome]:
    into = _folder(where, "aiperf")
    bin_folder = environment(into, "aiperf")
    tokenizer = _tokenizer(where, into)
    for kind in ("chat", "completions"):
        artifacts = into / kind
        command = ["profile", "--model", "any", "--url", server.url, "--endpoint-type", kind, "--streaming"]
        command += ["--tokenizer", tokenizer, "--request-count", _REQUESTS, "--concurrency", 2, "--ui", "none"]
        command += ["--isl", 32, "--osl", _OUTPUT_TOKENS, "--artifact-dir", artifacts]
        failure = _run(into, [bin_folder / "aiperf", *command])
        if not failure:
            (results,) = artifacts.rglob("profile_export_aiperf.json")
            told = json.loads(results.read_text())
            answered = told["request_count"]["avg"]
            failure = "" if answered == _REQUESTS and not told.get("error_summary") else f"{answered} were answered"
        yield Outcome(f"aiperf {version(bin_folder, 'aiperf')} {kind}", failure)


def _tokenizer(where: Options, into: Path) -> Path:
    """A folder with the core's own tokenizer, as Hugging Face's libraries load it."""
    folder = into / "tokenizer"
    folder.mkdir(exist_ok=True)
    with safe_open(where.core / "rank-0.safetensors", "numpy") as file:
        (folder / "tokenizer.json").write_bytes(file.get_tensor("frontend.tokenizer").tobytes())
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}\n')
    return folder


def _folder(where: Options, name: str) -> Path:
    folder = where.into / name
    folder.mkdir(exist_ok=True)
    return folder


def _run(into: Path, command: Sequence[object]) -> str:
    """Runs a program; what went wrong, or nothing."""
    with (into / "run.log").open("a") as log:
        run = subprocess.run([str(part) for part in command], cwd=into, stdout=log, stderr=log, timeout=_TIMEOUT_S)
    return f"exit code {run.returncode}; see {into / 'run.log'}" if run.returncode else ""


if __name__ == "__main__":
    sys.exit(main())
