"""What a recipe hands to preparation: geometry, a trunk and components, with no name that policy could read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from ignition.components.vocabulary import Vocabulary

if TYPE_CHECKING:
    from ignition.frontend.assets import FrontendAssets

PAGE_TOKENS = 64
PREFILL_TOKENS_MIN = 64


@dataclass(frozen=True)
class ModelGeometry:
    """Sizes that storage, state and programs follow from."""

    hidden: int
    vocabulary: int
    layers: int
    query_heads: int
    key_value_heads: int
    head_dim: int
    context_tokens_max: int


@dataclass(frozen=True)
class SamplingDefaults:
    """The model card's sampling; neutral where the card is silent."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    temperature_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class PreparedModel:
    """A canonical model whose weighted modules are components.

    `trunk(tokens i64[1, T], positions i64[1, T], token_slots i64[T])` gives the final normalized hidden state,
    bf16[1, T, H]. `attentions` are its attention modules in order of layer; each gets its layer's paged cache.
    """

    name: str
    fingerprint: str
    geometry: ModelGeometry
    trunk: nn.Module
    vocabulary: Vocabulary
    attentions: Sequence[nn.Module]
    sampling: SamplingDefaults
    frontend: "FrontendAssets"


@dataclass(frozen=True)
class PreparationOptions:
    """Capacities of a core."""

    requests_max: int = 4
    context_tokens_max: int | None = None  # None: the model's.
    prefill_tokens_max: int | None = None  # A multiple of 64; None: the device's default.
