"""The resource tests of anthropic-sdk-python, which its source distribution on PyPI carries, against `flare`.

python -m tests.conformance.anthropic_python --core DIR --into DIR
"""

import sys

from tests.conformance.harness import Rule, run_sdk

_FILES = ("test_messages.py", "test_models.py")
_PACKAGES = (
    "dirty-equals",
    "http-snapshot",
    "httpx-aiohttp",
    "inline-snapshot",
    "jsonschema",
    "mcp",
    "nest-asyncio",
    "pydantic",
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
    "respx",
    "rich",
    "time-machine",
)
_RULES = (
    Rule(
        "a made-up id: a model that is not served is a 404",
        test="test_models",
        message=r"The model 'model_id' does not exist",
    ),
)


def main() -> int:
    """Runs the suite."""
    return run_sdk(
        __doc__,
        "anthropic",
        needs=_PACKAGES,
        files=_FILES,
        selected="not aiohttp",
        rules=_RULES,
    )


if __name__ == "__main__":
    sys.exit(main())
