"""The house rules that no linter knows: file sizes, module docs, who may know whom, what no file may hold.

Every check reads the files that git tracks or would track, this one aside where it must spell what it bans.
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
RUST_LINES_MAX = 600
PYTHON_LINES_MAX = 400
FUNCTION_LINES_MAX = 70


def tracked(*patterns: str) -> list[Path]:
    """Files of the work tree that match any of the git pathspecs, ignored ones left out."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in output.split("\0") if name and (path := ROOT / name).is_file()]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def rust_body(text: str) -> list[str]:
    """The lines of a Rust file before its unit tests."""
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("#[cfg(test)]")]
    return lines[: starts[-1]] if starts and "mod tests {" in "\n".join(lines[starts[-1] :]) else lines


def generated(path: Path) -> bool:
    return path.name.endswith(("_pb2.py", "_pb2.pyi"))


def python_files(*patterns: str) -> list[Path]:
    return [path for path in tracked(*patterns) if not generated(path)]


def check_none(problems: Iterator[str]) -> None:
    found = list(problems)
    assert not found, "\n".join(found)


def lines_matching(files: list[Path], pattern: str) -> Iterator[str]:
    expression = re.compile(pattern)
    for path in files:
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if expression.search(line):
                yield f"{name(path)}:{number}: {line.strip()}"


def test_there_is_something_to_check() -> None:
    assert len(tracked("*.rs")) > 5
    assert len(tracked("*.py")) > 3


def test_rust_files_are_small() -> None:
    sizes = ((path, len(rust_body(path.read_text()))) for path in tracked("*.rs"))
    check_none(f"{name(path)}: {lines} lines" for path, lines in sizes if lines > RUST_LINES_MAX)


def test_python_files_are_small() -> None:
    sizes = ((path, len(path.read_text().splitlines())) for path in python_files("*.py"))
    check_none(f"{name(path)}: {lines} lines" for path, lines in sizes if lines > PYTHON_LINES_MAX)


def test_python_functions_are_short() -> None:
    """Clippy holds Rust's functions to the same."""
    check_none(
        f"{name(path)}:{node.lineno}: {node.name} has {lines} lines"
        for path in python_files("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES_MAX
    )


def test_every_rust_module_opens_with_its_doc() -> None:
    check_none(name(path) for path in tracked("*.rs") if not path.read_text().startswith("//! "))


def test_every_python_module_opens_with_its_doc() -> None:
    check_none(name(path) for path in python_files("*.py") if not ast.get_docstring(ast.parse(path.read_text())))


def test_every_operator_source_opens_with_a_comment() -> None:
    files = tracked("ignition/kernels/*.cpp", "ignition/kernels/*.h")
    check_none(name(path) for path in files if not path.read_text().startswith("// "))


@pytest.mark.parametrize("room", ["schedule", "cache", "parse"])
def test_sans_io_rooms_touch_nothing_outside(room: str) -> None:
    banned = (
        r"\b(tokio|rustix|libc|rand|getrandom)::|std::(fs|net|thread|env|process)\b|\bInstant\b|\bSystemTime\b"
        r"|crate::(device|runtime|server|text)\b(?!::(BufferId|ProgramId))"
    )
    check_none(lines_matching(tracked(f"helios/src/{room}/*.rs"), banned))


def test_devices_know_nothing_of_requests() -> None:
    banned = r"crate::(schedule|cache|runtime|server|text)\b"
    check_none(lines_matching(tracked("helios/src/device/*.rs", "helios/src/core/*.rs"), banned))


def test_runtime_does_not_know_the_server() -> None:
    check_none(lines_matching(tracked("helios/src/runtime/*.rs"), r"crate::server\b"))


def test_helios_knows_neither_of_its_callers_nor_python() -> None:
    files = tracked("helios/src/*.rs", "helios/Cargo.toml")
    check_none(lines_matching(files, r"\b(pyo3|flare_heliopause)\b|\bheliopause::"))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything that a Python file imports, wherever it does."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


FORBIDDEN_IMPORTS = {
    "ignition/recipes": ("ignition.devices", "ignition.export", "torch.cuda"),
    "ignition/components": ("ignition.devices", "ignition.export", "ignition.recipes"),
    "ignition/kernels": (
        "ignition.devices",
        "ignition.export",
        "ignition.recipes",
        "ignition.components",
        "ignition.preparation",
    ),
    "ignition/checkpoint": ("ignition.devices", "ignition.export", "ignition.recipes", "ignition.components"),
    "ignition/frontend": ("ignition.devices", "ignition.components"),
}


@pytest.mark.parametrize("room", FORBIDDEN_IMPORTS)
def test_imports_follow_the_arrows(room: str) -> None:
    def problems() -> Iterator[str]:
        for path in python_files(f"{room}/*.py"):
            for line, module in imports(path):
                if any(module == ban or module.startswith(f"{ban}.") for ban in FORBIDDEN_IMPORTS[room]):
                    yield f"{name(path)}:{line}: imports {module}"

    check_none(problems())


# A GGUF file spells architectures and tokenizers by name in its own tables; reading the format means knowing them.
# Forms of output go by the names of the families that brought them.
NAMES_MODELS = ("ignition/recipes/", "ignition/checkpoint/gguf_", "ignition/frontend/", "helios/src/parse/")


def test_models_are_named_in_recipes_alone() -> None:
    families = r"(?i)\b(llama(?!\.?_?cpp)|qwen\d?|mistral|smollm\d?|deepseek|gemma|phi\d)(?!\.cpp)"
    files = [
        path
        for path in tracked("ignition/*.py", "ignition/*.cpp", "ignition/*.h", "helios/src/*.rs", "flare/*.rs")
        if not name(path).startswith(NAMES_MODELS)
    ]
    bodies = {path: path.read_text() for path in files}
    check_none(
        f"{name(path)}:{number}: {line.strip()}"
        for path, text in bodies.items()
        for number, line in enumerate(rust_body(text) if path.suffix == ".rs" else text.splitlines(), start=1)
        if re.search(families, line)
    )


def test_unsafe_code_stays_at_the_edges() -> None:
    # A counting allocator is an unsafe interface, and the proof that steps allocate nothing needs one.
    edges = ("helios/src/device/", "helios/tests/steady_state.rs")
    files = [path for path in tracked("helios/*.rs", "flare/*.rs") if not name(path).startswith(edges)]
    check_none(lines_matching(files, r"\bunsafe\s*(\{|fn\b|impl\b)|#!?\[(allow|expect)\(unsafe_code"))


SOURCES = ("*.rs", "*.py", "*.pyi", "*.cpp", "*.h", "*.proto", "*.toml", "*.md", "Makefile", ".ci/*")


def sources(*patterns: str) -> list[Path]:
    return [path for path in tracked(*SOURCES, *patterns) if path != Path(__file__).resolve()]


def test_nothing_is_left_unfinished() -> None:
    check_none(lines_matching(sources(), r"\b(TODO|FIXME|XXX|unimplemented!|todo!)"))


def test_no_path_of_a_machine() -> None:
    check_none(lines_matching(sources(), r"(?<![\w.])/(home|root|Users|work)/"))


def test_registry_hosts_stand_in_lock_files_alone() -> None:
    check_none(lines_matching(sources(), r"pypi\.org|pythonhosted\.org|crates\.io|npmjs\.(org|com)"))
