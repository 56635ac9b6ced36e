"""Serves a core for one short answer under compute-sanitizer, which finds accesses outside of what is allocated."""

import argparse
import os
import re
import shutil
import signal
from pathlib import Path

from benchmarks.gpu_qualify_rows import merge
from benchmarks.gpu_qualify_serve import PORT, complete, said, serving

READY_MAX_S = 150.0
STOP_MAX_S = 60.0


def main() -> None:
    """Runs it where the tool is there, and merges its summary into the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("core", type=Path)
    parser.add_argument("--flare", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        merge(arguments.json, {"sanitizer": "compute-sanitizer is not on this machine"})
        return
    # Asking a kernel for its parameters ends with an error by design, and the tool would count it.
    check = [tool, "--tool", "memcheck", "--report-api-errors", "no"]
    command = [*check, str(arguments.flare), "run", str(arguments.core), "--port", str(PORT)]
    with serving(command, ready_max_s=READY_MAX_S) as (server, log):
        complete(1, 4, seed=0)
        os.kill(served_below(server.process.pid, arguments.flare.name), signal.SIGTERM)
        server.process.wait(STOP_MAX_S)
        summary = re.findall(r"ERROR SUMMARY: \d+ errors?", said(log))
    merge(arguments.json, {"sanitizer": summary[-1] if summary else "no summary"})


def served_below(pid: int, name: str) -> int:
    """The process of that name among a process' descendants: the tool starts the server, and only the server drains."""
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        if Path(f"/proc/{one}/comm").read_text().strip() == name:
            return one
        waiting += [int(child) for child in Path(f"/proc/{one}/task/{one}/children").read_text().split()]
    raise RuntimeError(f"no process below {pid} is {name}")


if __name__ == "__main__":
    main()
