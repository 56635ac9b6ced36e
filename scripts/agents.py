"""`make test-agents`: installs coding agents from npm and runs their suite.

They go into build/agents, or the folder that FLARE_AGENTS names. No install script runs: the programs come whole in
packages for this platform. The suite runs in a network namespace with a loopback interface alone, where agents reach
the server and nobody else.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.smollm2 import ROOT

VERSIONS = {"@anthropic-ai/claude-code": "2.1.332", "@openai/codex": "0.171.0", "opencode-ai": "1.18.33"}
SUITE = "tests/conformance/agents"


def folder() -> Path:
    """Where the agents are, or will be."""
    return Path(os.environ.get("FLARE_AGENTS", ROOT / "build" / "agents")).absolute()


def main() -> int:
    """Installs what is missing and runs the suite, with further arguments for pytest; returns the exit code."""
    for tool in ("npm", "unshare", "ip"):
        if shutil.which(tool) is None:
            print(f"agents: {tool} is not installed; the suite needs npm, util-linux and iproute2", file=sys.stderr)
            return 1
    packages = [f"{name}@{version}" for name, version in VERSIONS.items()]
    npm = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--prefix"]
    folder().mkdir(parents=True, exist_ok=True)
    subprocess.run([*npm, str(folder()), *packages], check=True)
    pytest = [sys.executable, "-m", "pytest", SUITE, *sys.argv[1:]]
    return subprocess.run([*_alone(), *pytest], cwd=ROOT).returncode


def _alone() -> list[str]:
    """What to put before a command so that it has a loopback interface and no other."""
    namespaces = ["--net"] if os.geteuid() == 0 else ["--net", "--map-root-user"]
    return ["unshare", *namespaces, "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


if __name__ == "__main__":
    sys.exit(main())
