"""The compliance test of OpenResponses against `flare`. No registry has it: --checkout names a copy of its repository.

python -m tests.conformance.openresponses --core DIR --into DIR --checkout DIR
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conformance.harness import Outcome, Rule, options, report

_PACKAGES = ("zod@3", "tsx")
_TIMEOUT_S = 1800
_RULES = (
    Rule("WebSockets are not served", test=r"^websocket"),
    Rule("`/v1/responses/compact` is not served", test=r"^compact"),
    Rule("the model takes text alone", test=r"^image-input"),
)


def main() -> int:
    """Runs the suite."""
    where = options(__doc__, wants_checkout=True)
    assert where.checkout is not None
    folder = where.into / "openresponses"
    for name in ("bin", "src"):
        shutil.copytree(where.checkout / name, folder / name, dirs_exist_ok=True)
    (folder / "package.json").write_text('{"type": "module"}\n')
    subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", *_PACKAGES], cwd=folder, check=True)
    with where.serve() as server:
        command = ["node", "--import", "tsx", "bin/compliance-test.ts", "--json", "-k", "unused", "-m", "any"]
        run = subprocess.run(
            [*command, "-u", f"{server.url}/v1"], cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
    return report(f"openresponses {_commit(where.checkout)}", _outcomes(run.stdout), _RULES)


def _outcomes(printed: str) -> list[Outcome]:
    results = json.loads(printed[printed.index("{") :])["results"]
    return [
        Outcome(
            result["id"],
            "" if result["status"] == "passed" else "; ".join(map(str, result.get("errors") or [result["status"]])),
            skipped=result["status"] == "skipped",
        )
        for result in results
    ]


def _commit(checkout: Path) -> str:
    command = ["git", "-C", checkout, "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
