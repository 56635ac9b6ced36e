"""docs/openapi.json names exactly the server's routes, and everything that it refers to is there.

That its schemas are true is checked by the server's own fuzz test, which holds every answer against them.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from scripts.smollm2 import ROOT

ROUTES = ROOT / "helios" / "src" / "server" / "routes.rs"
DOCUMENT: dict[str, Any] = json.loads((ROOT / "docs" / "openapi.json").read_text())
METHODS = {"get", "post", "put", "patch", "delete", "head", "options"}


def served() -> set[tuple[str, str]]:
    """Methods and paths of the router, as the document spells them."""
    source = ROUTES.read_text()
    routes = re.findall(r'\.route\(\s*"([^"]+)",\s*((?:\.?\w+\([\w:]+\))+),?\s*\)', source)
    assert len(routes) == source.count(".route("), "a route is written in another way"
    return {
        (method, path.replace("{*", "{"))
        for path, handlers in routes
        for method in re.findall(r"(\w+)\([\w:]+\)", handlers)
    }


def test_the_routes_are_the_servers() -> None:
    documented = {(method, path) for path, item in DOCUMENT["paths"].items() for method in item if method in METHODS}
    assert documented == served()


def references(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def test_what_is_referred_to_is_there_and_used() -> None:
    there = {f"#/components/{kind}/{name}" for kind, named in DOCUMENT["components"].items() for name in named}
    schemes = {f"#/components/securitySchemes/{name}" for name in DOCUMENT["components"]["securitySchemes"]}
    assert set(references(DOCUMENT)) == there - schemes
    operations = [operation for item in DOCUMENT["paths"].values() for key, operation in item.items() if key in METHODS]
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names)) > 0
    for operation in operations:
        assert {"200", "default"} <= operation["responses"].keys(), operation["operationId"]
