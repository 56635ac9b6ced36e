"""A tiny model taken through preparation up to captured programs."""

from pathlib import Path

from ignition.checkpoint import WeightMapping, load_weights, open_checkpoint
from ignition.devices.host.device import HostDevice
from ignition.preparation.model import PreparationOptions
from ignition.preparation.session import RecordedPreparationSession
from ignition.recipes import find_recipe
from tests.recipes.tiny_checkpoints import canonical_model, save_checkpoint

BASE = 0x1500_0000_0000
VARIANT = "qwen3"  # Head norms, a head width of its own, scaled rotary embedding, untied head.


def capture_tiny(folder: Path) -> RecordedPreparationSession:
    """Three layers, four slots, chunks up to 128."""
    checkpoint = open_checkpoint(str(save_checkpoint(canonical_model(VARIANT), folder)))
    recipe = find_recipe(checkpoint.config)
    session = RecordedPreparationSession(PreparationOptions(prefill_tokens_max=128), HostDevice(base=BASE))
    targets = session.place(recipe.build(checkpoint, checkpoint.fingerprint()))
    load_weights(checkpoint, WeightMapping(targets, recipe.ignored(checkpoint)))
    checkpoint.close()
    session.declare()
    session.compile()
    session.tune()
    session.capture()
    return session
