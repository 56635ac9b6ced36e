"""What a constraint on the answer costs: decoding under masks beside free decoding, in one run.

Both kinds of request take turns on one server, many times, and each number is the median over the turns. The ratio
is what is left of the rate.
"""

from collections import defaultdict
from typing import Any

from benchmarks.common import Row, argument_parser, median, report
from benchmarks.workload import DECODE_PROMPT_TOKENS, prompts, stream_rate
from scripts.server import binary, start_flare
from scripts.smollm2 import ROOT, ensure_core

_RECORD = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "kind": {"enum": ["person", "place", "thing"]},
        "year": {"type": "integer", "minimum": 0, "maximum": 2100},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 4},
        "parent": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
    },
    "required": ["name", "kind", "year", "tags", "parent"],
    "additionalProperties": False,
}
# No form can be complete within the tokens of a measurement.
_SCHEMA = {"type": "array", "items": _RECORD, "minItems": 100}
_REGEX = r"([A-Z][a-z]{2,12}( [a-z]{1,12}){2,10}[.?!] ){100}"
# What stands around calls: a thought first, then a call with free arguments.
_ENVELOPE = r"""
start: "<think>" thought CALL payload
thought[suffix="</think>"]: /(?s:.{120,})/
CALL: "\n<tool_call>\n"
payload: /(?s:.{1000,})/
"""
_FORMS: dict[str, dict[str, Any]] = {
    "json_schema": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "records", "schema": _SCHEMA}},
    },
    "regex": {"guided_regex": _REGEX},
    "tool envelope": {"guided_grammar": _ENVELOPE},
}


def main() -> None:
    """Measures free and constrained decoding in turn and reports."""
    parser = argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()

    log_path = ROOT / "build" / "benchmarks" / "constrained.log"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    core = ensure_core(ROOT / "build" / "demo-core")
    rates: dict[str, list[float]] = defaultdict(list)
    with log_path.open("w") as log, start_flare(binary("release"), core, log=log) as server:
        for number in range(arguments.rounds + 1):
            (prompt,) = prompts(1, DECODE_PROMPT_TOKENS, seed=number)
            for name, form in {"free": {}, **_FORMS}.items():
                rate = stream_rate(server, prompt, {"temperature": 1.0, "seed": number, **form})
                # The first round compiles the forms.
                if number > 0:
                    rates[name].append(rate)
    free = median(rates["free"])
    rows = [Row(f"decode {name} c=1", median(rates[name]), "tokens/s").beside("free", free) for name in _FORMS]
    report(rows, json_path=arguments.json)


if __name__ == "__main__":
    main()
