"""Recipes: what a model means. One folder a family, chosen by the architecture that a configuration names.

A recipe owns the mapping of weights, the modules it replaces, sampling defaults and the frontend's choice. It
composes components, and knows neither device nor export.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ignition.checkpoint import Checkpoint
from ignition.errors import UnsupportedModelError
from ignition.preparation.model import PreparedModel
from ignition.recipes import llama


@dataclass(frozen=True)
class Recipe:
    """The two steps of a recipe."""

    build: Callable[[Checkpoint, str], PreparedModel]
    """The canonical model on the meta device with components in place, of an open checkpoint and its
    fingerprint.
    """

    ignored: Callable[[Checkpoint], Mapping[str, str]]
    """Tensors that the checkpoint holds and the model does not need: name to reason."""


RECIPES = dict.fromkeys(llama.ARCHITECTURES, Recipe(llama.build, llama.ignored_tensors))


def find_recipe(config: Mapping[str, Any]) -> Recipe:
    """The recipe of a Hugging Face configuration.

    Raises `UnsupportedModelError` for an architecture without one.
    """
    architectures = config.get("architectures") or []
    for architecture in architectures:
        if architecture in RECIPES:
            return RECIPES[architecture]
    stated = ", ".join(architectures) or "none"
    raise UnsupportedModelError(f"no recipe prepares architecture {stated}; there are recipes for {', '.join(RECIPES)}")


__all__ = ["RECIPES", "Recipe", "find_recipe"]
