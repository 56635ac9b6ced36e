"""What every foreign suite needs: its package from a registry, an environment of its own, a server, a verdict a test.

A suite is kept in a folder outside this repository. A test that fails counts as not applicable only where a rule of the
suite's gives the reason; every other failure is one.
"""

import argparse
import dataclasses
import json
import os
import re
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from scripts.server import Server, binary, start_flare
from scripts.smollm2 import ROOT

_SUITE_TIMEOUT_S = 3600
_MESSAGE_CHARACTERS = 200


@dataclasses.dataclass(frozen=True)
class Rule:
    """Failures that tell nothing of this server: those whose test's name and message match."""

    reason: str
    test: str = ""
    message: str = ""

    def excuses(self, test: str, message: str) -> bool:
        """Whether a failure is one of them."""
        return bool(re.search(self.test, test)) and bool(re.search(self.message, message, re.DOTALL))


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One test's; `message` is empty where it passed."""

    test: str
    message: str = ""
    skipped: bool = False


@dataclasses.dataclass(frozen=True)
class Options:
    """Where things are."""

    core: Path
    into: Path
    flare: Path
    checkout: Path | None

    def serve(self, *arguments: str, port: int | None = None) -> Server:
        """A server of the core, logging into the suite's folder."""
        with (self.into / "flare.log").open("a") as log:
            return start_flare(self.flare, self.core, arguments=arguments, port=port, log=log)


def options(description: str | None, *, wants_checkout: bool = False) -> Options:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--core", type=Path, required=True, help="the prepared core to serve")
    parser.add_argument("--into", type=Path, required=True, help="folder outside this repository for what is fetched")
    parser.add_argument("--profile", default="release", help="the Cargo profile that flare was built with")
    if wants_checkout:
        parser.add_argument("--checkout", type=Path, required=True, help="a checkout of the suite's repository")
    read = parser.parse_args()
    into = read.into.resolve()
    if into.is_relative_to(ROOT):
        parser.error(f"--into {into} lies in this repository")
    into.mkdir(parents=True, exist_ok=True)
    return Options(read.core.resolve(), into, binary(read.profile), getattr(read, "checkout", None))


def sources(into: Path, package: str) -> Path:
    """The unpacked source distribution of a PyPI package, in the newest version unless it was unpacked before."""
    pattern = f"{package.replace('-', '_')}-*"
    archives = sorted(into.glob(f"{pattern}.tar.gz"))
    if not archives:
        pip = [environment(into) / "pip", "download", "--quiet", "--no-deps", "--no-binary", package]
        subprocess.run([*pip, "--dest", into, package], check=True)
        archives = sorted(into.glob(f"{pattern}.tar.gz"))
    folder = into / archives[-1].name.removesuffix(".tar.gz")
    if not folder.is_dir():
        with tarfile.open(archives[-1]) as archive:
            archive.extractall(into, filter="data")
    return folder


def environment(into: Path, *packages: str | Path) -> Path:
    """The `bin` folder of a virtual environment with these packages."""
    environment_path = into / "environment"
    if not (environment_path / "bin").is_dir():
        subprocess.run([sys.executable, "-m", "venv", environment_path], check=True)
    if packages:
        subprocess.run([environment_path / "bin" / "pip", "install", "--quiet", *packages], check=True)
    return environment_path / "bin"


def version(bin_folder: Path, package: str) -> str:
    """The installed version of a package."""
    script = f"import importlib.metadata as m; print(m.version({package!r}))"
    run = subprocess.run([bin_folder / "python", "-c", script], capture_output=True, text=True, check=True)
    return run.stdout.strip()


def run_pytest(bin_folder: Path, folder: Path, arguments: Sequence[str], *, variables: dict[str, str]) -> list[Outcome]:
    """Runs tests with their own pytest and returns what came of each."""
    results = folder / "results.xml"
    results.unlink(missing_ok=True)
    command = [bin_folder / "python", "-m", "pytest", "-q", "-o", "addopts=", f"--junitxml={results}", *arguments]
    with (folder / "pytest.log").open("w") as log:
        subprocess.run(
            command, cwd=folder, env={**os.environ, **variables}, stdout=log, stderr=log, timeout=_SUITE_TIMEOUT_S
        )
    return read_junit(results)


def run_sdk(
    description: str | None,
    package: str,
    *,
    needs: Sequence[str],
    files: Iterable[str],
    selected: str,
    base_path: str = "",
    rules: Sequence[Rule],
) -> int:
    """Runs the resource tests that an SDK's source distribution carries, and reports; returns the exit code."""
    where = options(description)
    folder = sources(where.into, package)
    bin_folder = environment(where.into, folder, *needs)
    arguments = [*(f"tests/api_resources/{name}" for name in files), "-k", selected, "--timeout", "120"]
    with where.serve() as server:
        address = {"TEST_API_BASE_URL": f"{server.url}{base_path}"}
        outcomes = run_pytest(bin_folder, folder, arguments, variables=address)
    return report(folder.name, outcomes, rules)


def read_junit(results: Path) -> list[Outcome]:
    """The outcomes in a JUnit file."""
    outcomes = []
    for case in ElementTree.parse(results).iter("testcase"):
        test = "::".join(part for part in (case.get("classname"), case.get("name")) if part)
        failures = [*case.iter("failure"), *case.iter("error")]
        message = "\n".join(f"{failure.get('message')}\n{failure.text}" for failure in failures)
        outcomes.append(Outcome(test, message, skipped=case.find("skipped") is not None))
    return outcomes


def report(suite: str, outcomes: Iterable[Outcome], rules: Sequence[Rule]) -> int:
    """Prints the counts, the failures and why tests do not apply; returns the exit code."""
    passed, failures, excused = 0, [], Counter[str]()
    for outcome in outcomes:
        if outcome.skipped:
            excused["skipped by the suite itself"] += 1
        elif not outcome.message:
            passed += 1
        elif rule := next((rule for rule in rules if rule.excuses(outcome.test, outcome.message)), None):
            excused[rule.reason] += 1
        else:
            failures.append(outcome)
    for failure in failures:
        sys.stdout.write(f"FAILED {failure.test}\n    {_gist(failure.message)}\n")
    for reason, count in excused.most_common():
        sys.stdout.write(f"not applicable: {count:4} {reason}\n")
    counts = {"passed": passed, "failed": len(failures), "not_applicable": excused.total()}
    sys.stdout.write(json.dumps({"suite": suite, **counts}) + "\n")
    return 1 if failures or not passed else 0


def _gist(message: str) -> str:
    said = [line.strip()[2:].strip() for line in message.splitlines() if line.startswith("E ")]
    return " ".join(said or message.splitlines())[:_MESSAGE_CHARACTERS]
