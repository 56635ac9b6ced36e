"""The resource tests of openai-python, which its source distribution on PyPI carries, against `flare`.

python -m tests.conformance.openai_python --core DIR --into DIR
"""

import sys

from tests.conformance.harness import Rule, run_sdk

_FILES = (
    "chat/test_completions.py",
    "test_completions.py",
    "test_models.py",
    "test_responses.py",
    "responses/test_input_items.py",
    "responses/test_input_tokens.py",
)
_PACKAGES = (
    "dirty-equals",
    "httpx-aiohttp",
    "inline-snapshot",
    "jsonschema",
    "nest-asyncio",
    "numpy",
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
    "respx",
    "rich",
    "time-machine",
)
_RULES = (
    Rule(
        "made-up ids: a response, completion or model that never was is a 404",
        message=r"NotFoundError: Error code: 404 - .*(resp_677efb5139a88190b512bc3fef8e535d|'model' does not exist|"
        r"The model '\S+' does not exist)",
    ),
    Rule(
        "chat completions are not stored: there is nothing to list, retrieve, update or delete",
        test=r"chat.test_completions.*(retrieve|list|update|delete)",
        message=r"Error code: 40[45]",
    ),
    Rule("a response without any input has nothing to answer", message=r"Missing required parameter: 'input'"),
    Rule(
        "hosted features: stored prompts, conversations, background",
        message=r"Unsupported parameter '(prompt|conversation|background)'",
    ),
    Rule("made-up data: a bias for the token `foo`", message=r"'foo' is not a token id"),
    Rule("audio is not served", message=r"Unsupported parameter 'modalities'"),
    Rule(
        "routes of OpenAI's platform that are not served",
        test=r"(input_items|input_tokens|cancel|compact)",
        message=r"Error code: 40[45]",
    ),
)


def main() -> int:
    """Runs the suite."""
    return run_sdk(
        __doc__,
        "openai",
        needs=_PACKAGES,
        files=_FILES,
        selected="(create or retrieve or list) and not aiohttp",
        base_path="/v1",
        rules=_RULES,
    )


if __name__ == "__main__":
    sys.exit(main())
