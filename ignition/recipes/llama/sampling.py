"""Sampling defaults as model cards recommend them; generation_config.json is not consulted.

The cards of SmolLM2 and SmolLM3 were read on 2026-11-29. Qwen3's entries are its published recommendation as
quoted below, and still have to be held against the cards.

A card that recommends nothing leaves everything neutral: temperature 1 and no filter. Cards of base models
recommend nothing; the patterns below name the tuned ones.
"""

import re

from ignition.preparation.model import SamplingDefaults

CARDS: list[tuple[str, str, SamplingDefaults]] = [
    # The card's example: `model.generate(inputs, max_new_tokens=50, temperature=0.2, top_p=0.9, do_sample=True)`.
    ("LlamaForCausalLM", r"smollm2.*instruct", SamplingDefaults(temperature=0.2, top_p=0.9)),
    # "We recommend setting temperature=0.6 and top_p=0.95 in the sampling parameters."
    ("SmolLM3ForCausalLM", r"smollm3(?!.*base)", SamplingDefaults(temperature=0.6, top_p=0.95)),
    # "We suggest using Temperature=0.7, TopP=0.8, TopK=20, and MinP=0", for the 2507 models that do not think.
    ("Qwen3ForCausalLM", r"qwen3.*instruct-2507", SamplingDefaults(temperature=0.7, top_p=0.8, top_k=20)),
    # "For thinking mode, use Temperature=0.6, TopP=0.95, TopK=20, and MinP=0", thinking being the default mode.
    ("Qwen3ForCausalLM", r"qwen3(?!.*base)", SamplingDefaults(temperature=0.6, top_p=0.95, top_k=20)),
]
"""Architecture, pattern of the model's name, and what its card says. The first that fits counts."""


def sampling_defaults(architecture: str, name: str) -> SamplingDefaults:
    """The card's defaults for a checkpoint's name; neutral for a model whose card is silent or not known here."""
    for card_architecture, pattern, defaults in CARDS:
        if architecture == card_architecture and re.search(pattern, name, flags=re.IGNORECASE):
            return defaults
    return SamplingDefaults()
