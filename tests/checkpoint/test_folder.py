"""Folders of safetensors: values, shards, assets, damage, and the direct loader's accounting."""

import json

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import BPE

from ignition.checkpoint import WeightMapping, load_weights, open_checkpoint
from ignition.errors import CheckpointError


def write_folder(path, tensors, *, shards=1, settings=None, config=None):
    """A minimal checkpoint folder of the given tensors."""
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps({"architectures": ["X"], "eos_token_id": 1, **(config or {})}))
    Tokenizer(BPE({"a": 0, "b": 1}, [])).save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps(settings or {}))
    names = sorted(tensors)
    if shards == 1:
        save_file(tensors, path / "model.safetensors")
        return path
    placed = {name: f"model-{index % shards}.safetensors" for index, name in enumerate(names)}
    for shard in set(placed.values()):
        save_file({name: tensors[name] for name in names if placed[name] == shard}, path / shard)
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": placed}))
    return path


class Rows:
    """A target that keeps what it is given."""

    def __init__(self, *shape):
        self.shape = shape
        self.firsts = []
        self.value = torch.zeros(shape, dtype=torch.bfloat16)

    def write(self, first_row, rows):
        self.firsts.append(first_row)
        self.value[first_row : first_row + rows.shape[0]] = rows


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_rows_are_the_stored_values(tmp_path, shards, dtype):
    tensors = {f"t{index}": torch.randn(5 + index, 7).to(dtype) for index in range(4)}
    checkpoint = open_checkpoint(str(write_folder(tmp_path / "m", tensors, shards=shards)))
    assert {name: info.shape for name, info in checkpoint.tensors.items()} == {
        name: tuple(value.shape) for name, value in tensors.items()
    }
    for name, value in tensors.items():
        assert torch.equal(checkpoint.read_rows(name, 1, 3), value[1:4].to(torch.bfloat16))
    assert checkpoint.stored_bytes == sum(value.nbytes for value in tensors.values())


def test_fingerprint_does_not_depend_on_sharding(tmp_path):
    tensors = {"a": torch.ones(3, 4), "b": torch.zeros(2)}
    one = open_checkpoint(str(write_folder(tmp_path / "one", tensors))).fingerprint()
    two = open_checkpoint(str(write_folder(tmp_path / "two", tensors, shards=2))).fingerprint()
    other = open_checkpoint(str(write_folder(tmp_path / "x", {**tensors, "b": torch.ones(2)}))).fingerprint()
    assert one == two != other


def test_loader_writes_aligned_blocks_in_order(tmp_path):
    value = torch.randn(3000, 4096).to(torch.bfloat16)
    checkpoint = open_checkpoint(str(write_folder(tmp_path / "m", {"w": value})))
    target, done = Rows(3000, 4096), []
    load_weights(checkpoint, WeightMapping({"w": target}), advance=done.append)
    assert torch.equal(target.value, value)
    assert len(target.firsts) > 1 and all(first % 64 == 0 for first in target.firsts)
    assert done == [value.nbytes]


def test_loader_names_what_is_missing_extra_or_misshapen(tmp_path):
    checkpoint = open_checkpoint(str(write_folder(tmp_path / "m", {"a": torch.ones(2, 3), "b": torch.ones(4)})))
    with pytest.raises(CheckpointError, match="lacks tensor c"):
        load_weights(checkpoint, WeightMapping({"a": Rows(2, 3), "b": Rows(4), "c": Rows(1)}))
    with pytest.raises(CheckpointError, match="holds tensor b"):
        load_weights(checkpoint, WeightMapping({"a": Rows(2, 3)}))
    with pytest.raises(CheckpointError, match=r"tensor a has shape \[2, 3\].*\[3, 2\]"):
        load_weights(checkpoint, WeightMapping({"a": Rows(3, 2), "b": Rows(4)}))
    target = Rows(2, 3)
    load_weights(checkpoint, WeightMapping({"a": target}, ignored={"b": "a test says so"}))
    assert torch.equal(target.value, torch.ones(2, 3, dtype=torch.bfloat16))


def test_damage_is_a_typed_error(tmp_path):
    folder = write_folder(tmp_path / "m", {"a": torch.ones(64, 64)})
    whole = (folder / "model.safetensors").read_bytes()
    for content in (
        b"",
        whole[:7],
        whole[:30],
        whole[:-1],
        b"\xff" * 64,
        (5).to_bytes(8, "little") + b"nope!",
    ):
        (folder / "model.safetensors").write_bytes(content)
        with pytest.raises(CheckpointError, match=r"model\.safetensors|tensor a"):
            open_checkpoint(str(folder))
    (folder / "model.safetensors").write_bytes(whole)
    (folder / "config.json").write_text("[1]")
    with pytest.raises(CheckpointError, match=r"config\.json"):
        open_checkpoint(str(folder))
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        open_checkpoint(str(folder))


def test_quantized_tensors_are_refused_by_name(tmp_path):
    checkpoint = open_checkpoint(str(write_folder(tmp_path / "m", {"q": torch.ones(4, 4, dtype=torch.int8)})))
    with pytest.raises(CheckpointError, match="tensor q is stored as I8"):
        checkpoint.read_rows("q", 0, 4)


def test_frontend_assets(tmp_path):
    settings = {
        "bos_token": {"content": "a"},
        "eos_token": "b",
        "chat_template": [{"name": "default", "template": "T"}],
    }
    folder = write_folder(tmp_path / "m", {"a": torch.ones(1)}, settings=settings, config={"eos_token_id": [5, 1]})
    assets = open_checkpoint(str(folder)).frontend
    assert (assets.bos_text, assets.eos_text, assets.eos_tokens, assets.template) == ("a", "b", (5, 1), "T")
    (folder / "chat_template.jinja").write_text("J")
    (folder / "generation_config.json").write_text('{"eos_token_id": 7, "temperature": 0.1}')
    assets = open_checkpoint(str(folder)).frontend
    assert (assets.eos_tokens, assets.template) == ((7, 1), "J")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json"):
        open_checkpoint(str(folder))


def test_names_that_are_no_checkpoint(tmp_path, monkeypatch):
    (tmp_path / "x.bin").write_bytes(b"")
    for name in (str(tmp_path / "x.bin"), str(tmp_path / "nowhere"), "./nowhere", "nowhere.gguf", "a/b.gguf"):
        with pytest.raises(CheckpointError):
            open_checkpoint(name)


def test_an_unreachable_hub_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(CheckpointError, match="give its folder"):
        open_checkpoint("HuggingFaceTB/SmolLM2-135M-Instruct-nowhere")
