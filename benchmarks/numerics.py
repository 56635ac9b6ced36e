"""How close a core's logits are to exact ones: fifty prompts, each followed for 64 steps, against Transformers' bf16.

Every engine reads the same text. Exact means Transformers in float64 on the same bf16 weights; the distance is
KL(exact || engine) at each position. Takes some minutes.
"""

import sys
from pathlib import Path

from benchmarks.common import Row, argument_parser, report
from ignition.checkpoint import open_checkpoint
from scripts.smollm2 import ROOT, ensure_core, weights
from tests.numerics.measure import encode_prompts, measure


def main() -> int:
    """Measure and report."""
    parser = argument_parser(__doc__)
    parser.add_argument("--core", type=Path, help="a core of SmolLM2-135M-Instruct (default: prepared under build/)")
    parser.add_argument("--prompts", type=int, help="use only the first N")
    options = parser.parse_args()
    core = options.core or ensure_core(ROOT / "build" / "numerics-core")
    checkpoint = open_checkpoint(str(weights()))
    prompts = encode_prompts(checkpoint, options.prompts)
    done = iter(range(1, len(prompts) + 1))
    evidence = measure(
        core, checkpoint, prompts, advance=lambda: print(f"\r{next(done)}/{len(prompts)}", end="", file=sys.stderr)
    )
    flare, peer = evidence.flare, evidence.transformers
    report(
        [
            Row(
                "median KL to exact", flare.median_kl, "nats", "transformers bf16", peer.median_kl, more_is_better=False
            ),
            Row("mean KL to exact", flare.mean_kl, "nats", "transformers bf16", peer.mean_kl, more_is_better=False),
            Row("top-1 agreement with exact", flare.top1_agreement, "share", "transformers bf16", peer.top1_agreement),
            Row("median KL to transformers bf16", evidence.flare_to_transformers.median_kl, "nats"),
            Row("top-1 agreement with transformers bf16", evidence.flare_to_transformers.top1_agreement, "share"),
            Row("positions", flare.positions, "tokens"),
        ],
        json_path=options.json,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
