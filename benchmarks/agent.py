"""Flare beside llama.cpp and vLLM as agents use a server: conversations, appended to turn after turn.

The engines take turns, one at a time, with the same BF16 weights and the same texts. docs/benchmarks.md says how to
install the others and how each number is taken. With --profile, only hits are timed, by cached and new tokens.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from benchmarks.agents import COLD_TOKENS, TURNS, Replies, Turn, hit_ttft_s, run_agents, stall
from benchmarks.common import Row, argument_parser, median, p99, report
from benchmarks.llama import llama_command, llama_version, start_llama
from benchmarks.vllm import start_vllm, vllm_command, vllm_version
from benchmarks.workload import CONCURRENCIES, first_token_s
from scripts.server import Server, binary, start_flare
from scripts.smollm2 import ROOT, ensure_core

_SLOTS = max(CONCURRENCIES)
# One more agent than there are slots must not make the others start over.
_AGENTS = (*CONCURRENCIES, _SLOTS + 1)
_CONTEXT_TOKENS = 8192
_LLAMA_CONTEXT = ["-c", str(_SLOTS * _CONTEXT_TOKENS), "--no-kv-unified"]
_PROFILE_CACHED_TOKENS = (1500, 3000, 6000)
_PROFILE_NEW_TOKENS = (16, 64, 128, 256, 320, 512)
_PROMPTS = "prompt tokens"
_UNITS = {"ttft": "ms", "stall": "ms", "hit": "ms", "cached": "", "prompt": "tokens"}

# By engine, then by name of the measurement.
Samples = dict[str, dict[str, list[float]]]


class Measure(Protocol):
    """Measures one fresh server: names and values. Servers measured with equal seeds get equal prompts."""

    def __call__(self, server: Server, *, seed: int) -> Iterator[tuple[str, float]]: ...


def main() -> None:
    """Measures every engine in turn and reports."""
    parser = argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--llama-bin", type=Path, metavar="DIR", help="folder of llama-server and llama-quantize")
    parser.add_argument("--vllm-python", type=Path, metavar="FILE", help="interpreter that has vLLM for the CPU")
    parser.add_argument("--agents", type=int, nargs="+", default=_AGENTS, metavar="N", help="agents at the same time")
    parser.add_argument("--turns", type=int, default=TURNS, help="turns of each agent")
    parser.add_argument("--cold-tokens", type=int, default=COLD_TOKENS, help="the prompt that decoders stall for")
    parser.add_argument("--profile", action="store_true", help="time hits by cached and new tokens, nothing else")
    arguments = parser.parse_args()

    core = ensure_core(ROOT / "build" / "demo-core")
    replies = Replies.of(core)
    measure: Measure = partial(
        _trace,
        replies=replies,
        agents=arguments.agents,
        turns=arguments.turns,
        cold_tokens=arguments.cold_tokens,
    )
    if arguments.profile:
        measure = partial(_profile, replies=replies)
    log_path = ROOT / "build" / "benchmarks" / "servers.log"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    versions = {}
    with log_path.open("w") as log:
        engines: dict[str, Callable[[], Server]] = {"flare": lambda: start_flare(binary("release"), core, log=log)}
        if arguments.llama_bin is None:
            print("no --llama-bin: llama.cpp is left out")
        else:
            command = llama_command(arguments.llama_bin, lanes=_SLOTS, context=_LLAMA_CONTEXT)
            versions["llama.cpp"] = llama_version(arguments.llama_bin)
            engines["llama.cpp bf16"] = lambda: start_llama(command, log)
        if arguments.vllm_python is None:
            print("no --vllm-python: vLLM is left out")
        else:
            serve = vllm_command(arguments.vllm_python, lanes=_SLOTS, context_tokens=_CONTEXT_TOKENS)
            versions["vllm"] = vllm_version(arguments.vllm_python)
            engines["vllm bf16"] = lambda: start_vllm(serve, log)
        samples = _measure(engines, measure, arguments.rounds)
    report(_rows(samples), json_path=arguments.json, versions=versions)


def _measure(engines: dict[str, Callable[[], Server]], measure: Measure, rounds: int) -> Samples:
    samples: Samples = defaultdict(lambda: defaultdict(list))
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", flush=True)
        for engine, start in engines.items():
            with start() as server:
                first_token_s(server)
                for name, value in measure(server, seed=number):
                    samples[engine][name].append(value)
    return samples


def _trace(
    server: Server, *, replies: Replies, agents: Sequence[int], turns: int, cold_tokens: int, seed: int
) -> Iterator[tuple[str, float]]:
    for count in agents:
        computed = _computed_tokens(server)
        told = run_agents(server, replies, count, turns=turns, seed=1000 * seed + 100 * count)
        yield from _told(told, computed_tokens=_computed_tokens(server) - computed)
    felt = stall(server, replies, cold_tokens=cold_tokens, seed=seed)
    yield "stall worst gap between tokens", 1000 * felt.worst_gap_s
    yield f"stall ttft of {cold_tokens} cold tokens", 1000 * felt.cold_ttft_s


def _told(told: Sequence[Sequence[Turn]], *, computed_tokens: int) -> Iterator[tuple[str, float]]:
    """What agents saw; `computed_tokens` is the engine's own count, or 0 from an engine that keeps none."""
    count = len(told)
    turns = [turn for agent in told for turn in agent]
    hits = [(turn, before) for agent in told for before, turn in zip(agent, agent[1:], strict=False)]
    for agent in told:
        for number, turn in enumerate(agent, start=1):
            yield f"ttft turn {number} c={count}", 1000 * turn.ttft_s
    for turn, _ in hits:
        yield f"ttft turn 2 and later c={count}", 1000 * turn.ttft_s
    in_requests = sum(turn.computed_tokens for turn in turns)
    cached = sum(turn.prompt_tokens - turn.computed_tokens for turn, _ in hits)
    new = sum(turn.prompt_tokens - before.consumed_tokens for turn, before in hits)
    yield f"{_PROMPTS} c={count}", sum(turn.prompt_tokens for turn in turns)
    yield f"prompt tokens computed c={count}", max(in_requests, computed_tokens)
    yield f"prompt tokens computed again c={count}", sum(turn.computed_tokens for turn, _ in hits) - new
    yield f"cached fraction c={count}", cached / sum(turn.prompt_tokens for turn, _ in hits)


def _profile(server: Server, *, replies: Replies, seed: int) -> Iterator[tuple[str, float]]:
    for cached_tokens in _PROFILE_CACHED_TOKENS:
        for new_tokens in _PROFILE_NEW_TOKENS:
            unique = 1_000_000 * seed + 1000 * cached_tokens + new_tokens
            ttft_s = hit_ttft_s(server, replies, cached_tokens=cached_tokens, new_tokens=new_tokens, seed=unique)
            yield f"hit {cached_tokens} cached {new_tokens} new", 1000 * ttft_s


def _computed_tokens(server: Server) -> int:
    """Prompt tokens that the engine has computed, those of preempted requests included."""
    computed: int = server.health().get("engine", {}).get("prompt_tokens_computed", 0)
    return computed


def _rows(samples: Samples) -> list[Row]:
    """One row a statistic and peer, Flare's own rows first in order."""
    rows = []
    peers = [engine for engine in samples if engine != "flare"] or [""]
    for name, values in samples["flare"].items():
        kind = name.split()[0]
        statistics = {f"{name} median": median, f"{name} p99": p99} if kind == "ttft" else {name: median}
        for row_name, statistic in statistics.items():
            row = Row(row_name, statistic(values), _UNITS[kind], more_is_better=kind == "cached")
            for peer in peers:
                theirs = samples[peer][name] if peer else []
                if name.startswith(f"{_PROMPTS} c=") and peer and theirs != values:
                    raise ValueError(f"{peer} counts other prompts than flare: {name}: {theirs} and {values}")
                rows.append(row.beside(peer, statistic(theirs)) if peer else row)
    return rows


if __name__ == "__main__":
    main()
