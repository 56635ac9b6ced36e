"""The resource tests of anthropic-sdk-python, which its source distribution on PyPI carries, against `flare`.

python -m tests.conformance.anthropic_python --core DIR --into DIR
"""

import sys

from tests.conformance.harness import Rule, environment, options, report, run_pytest, sources

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
    where = options(__doc__)
    folder = sources(where.into, "anthropic")
    bin_folder = environment(where.into, folder, *_PACKAGES)
    files = ["tests/api_resources/test_messages.py", "tests/api_resources/test_models.py"]
    with where.serve() as server:
        outcomes = run_pytest(
            bin_folder,
            folder,
            [*files, "-k", "not aiohttp", "--timeout", "120"],
            variables={"TEST_API_BASE_URL": server.url},
        )
    return report(folder.name, outcomes, _RULES)


if __name__ == "__main__":
    sys.exit(main())
