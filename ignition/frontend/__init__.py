"""What text needs at serving: the tokenizer, the chat template, and the tokens that begin and end a turn.

Owns finding these in a checkpoint and stating them as typed values. It never renders a prompt and never
tokenizes a request; the serving process does.
"""

from ignition.frontend.assets import FrontendAssets, ReasoningParser, ToolParser
from ignition.frontend.formats import with_parsers

__all__ = ["FrontendAssets", "ReasoningParser", "ToolParser", "with_parsers"]
