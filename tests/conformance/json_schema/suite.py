"""The official JSON-Schema-Test-Suite: its schemas, as the sources of the `jsonschema` package carry them.

Nothing of it lies in this repository. The archive is fetched once, from the package index, in the version and with the
digest that uv.lock names, and stays below build/.
"""

import json
import subprocess
import tarfile
import tomllib
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.smollm2 import ROOT

FOLDER = ROOT / "build" / "json-schema-suite"
DRAFTS = ("draft4", "draft6", "draft7", "draft2019-09", "draft2020-12")


@dataclass(frozen=True)
class Case:
    """A schema and the draft that it is written for."""

    name: str
    draft: str
    schema: dict[str, Any]


def official_cases() -> list[Case]:
    """Every different schema of the suite that is an object. Equal ones of several drafts count once."""
    archive = fetched_archive()
    found: dict[str, Case] = {}
    with tarfile.open(archive) as files:
        for path, groups in schema_files(files):
            for group in groups:
                schema = group["schema"]
                if isinstance(schema, dict):
                    name = f"{'/'.join(path.with_suffix('').parts)}: {group['description']}"
                    found.setdefault(json.dumps(schema), Case(name, path.parts[0], schema))
    return list(found.values())


def schema_files(files: tarfile.TarFile) -> Iterator[tuple[Path, list[Any]]]:
    """The test files of all drafts, below the drafts' folder, in order."""
    for member in sorted(files.getmembers(), key=lambda member: member.name):
        path = Path(*Path(member.name).parts[1:])
        if path.suffix == ".json" and path.parts[:2] == ("json", "tests") and path.parts[2] in DRAFTS:
            content = files.extractfile(member)
            assert content is not None
            yield Path(*path.parts[2:]), json.load(content)


def fetched_archive() -> Path:
    """The archive of the locked version's sources."""
    version, digest = locked_source("jsonschema")
    archive = FOLDER / f"jsonschema-{version}.tar.gz"
    if not archive.is_file():
        FOLDER.mkdir(parents=True, exist_ok=True)
        requirement = FOLDER / "requirement.txt"
        requirement.write_text(f"jsonschema=={version} --hash={digest}\n")
        # The environment of the tests has no pip.
        venv.create(FOLDER / "pip", with_pip=True)
        command = [FOLDER / "pip" / "bin" / "python", "-m", "pip", "download", "--quiet", "--no-deps"]
        options = ["--no-binary", "jsonschema", "--require-hashes", "--dest", FOLDER, "--requirement", requirement]
        subprocess.run([*command, *options], check=True, timeout=300)
    return archive


def locked_source(package: str) -> tuple[str, str]:
    """The version of a package in uv.lock, and the digest of its sources."""
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    (entry,) = (entry for entry in lock["package"] if entry["name"] == package)
    return entry["version"], entry["sdist"]["hash"]
