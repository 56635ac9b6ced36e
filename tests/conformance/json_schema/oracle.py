"""What llguidance itself says of a schema, and which refusals are ours."""

import json
from typing import Any

from llguidance import JsonCompiler, LLMatcher

_OURS = {
    "control characters in literal values": "the answers' JSON has no \\u escapes",
    "integers beyond 2^53": "readers that compute in doubles do not tell their neighbours apart",
    'format "unknown"': "llguidance leaves the string free",
    "only references into the schema itself": "llguidance follows other references only with a library that fetches",
    "references below an $id of their own": "as above",
    "references by a name with a slash": "as above",
    "there is no schema at": "what is below an unknown keyword is no schema",
    "keyword not": "a schema that nothing refers to is checked, too",
}
"""Parts of reasons, and why they stand although llguidance takes the schema."""


def is_supported(schema: dict[str, Any]) -> bool:
    """Whether llguidance takes a schema as it stands, without a warning."""
    try:
        is_error, messages = LLMatcher.validate_grammar_with_warnings(JsonCompiler().compile(json.dumps(schema)))
    except BaseException as error:  # noqa: BLE001 - a panic of the library is no Exception.
        if isinstance(error, KeyboardInterrupt):
            raise
        return False
    return not is_error and not messages


def our_own_reason(reason: str) -> str | None:
    """Why we refuse what llguidance takes."""
    return next((why for part, why in _OURS.items() if part in reason), None)
