"""GGUF files: values, row order, metadata, tokenizer and damage, on written files and on the demo's weights."""

import json

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import dequantize, quantize
from tokenizers import Tokenizer

from ignition.checkpoint import open_checkpoint
from ignition.errors import CheckpointError, UnsupportedModelError

HEADS, KV_HEADS, WIDTH, HIDDEN = 4, 2, 8, 32
TOKENS = ["<|end|>", *[chr(0x21 + index) for index in range(60)]]


def llama_file(path, *, quantization=gguf.GGMLQuantizationType.F32, architecture="llama", pre="smollm", extra=None):
    """A one-layer GGUF model with seeded weights; returns the Transformers-ordered float32 values by HF name."""
    generator = np.random.default_rng(7)
    shapes = {
        "token_embd.weight": (len(TOKENS), HIDDEN),
        "output_norm.weight": (HIDDEN,),
        "blk.0.attn_q.weight": (HEADS * WIDTH, HIDDEN),
        "blk.0.attn_k.weight": (KV_HEADS * WIDTH, HIDDEN),
    }
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_context_length(128)
    writer.add_block_count(1)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(64)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_merges([])
    writer.add_token_types([3, *[1] * 60])
    writer.add_eos_token_id(0)
    values = {}
    for name, shape in shapes.items():
        value = generator.standard_normal(shape).astype(np.float32)
        heads = {"blk.0.attn_q.weight": HEADS, "blk.0.attn_k.weight": KV_HEADS}.get(name)
        stored = value
        if heads:  # llama.cpp's converter: LlamaModel.permute
            stored = value.reshape(heads, 2, WIDTH // 2, HIDDEN).swapaxes(1, 2).reshape(shape)
        if len(shape) == 2 and quantization != gguf.GGMLQuantizationType.F32:
            packed = quantize(stored, quantization)
            writer.add_tensor(name, packed, raw_dtype=quantization)
            stored = dequantize(packed, quantization)
            value = stored
            if heads:
                value = stored.reshape(heads, WIDTH // 2, 2, HIDDEN).swapaxes(1, 2).reshape(shape)
        else:
            writer.add_tensor(name, stored)
        values[name] = value
    for name, value in (extra or {}).items():
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {
        "model.embed_tokens.weight": values["token_embd.weight"],
        "model.norm.weight": values["output_norm.weight"],
        "model.layers.0.self_attn.q_proj.weight": values["blk.0.attn_q.weight"],
        "model.layers.0.self_attn.k_proj.weight": values["blk.0.attn_k.weight"],
    }


@pytest.mark.parametrize("quantization", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"])
def test_values_come_back_in_transformers_row_order(tmp_path, quantization):
    values = llama_file(tmp_path / "m.gguf", quantization=gguf.GGMLQuantizationType[quantization])
    checkpoint = open_checkpoint(str(tmp_path / "m.gguf"))
    assert set(checkpoint.tensors) == set(values)
    for name, value in values.items():
        expected = torch.from_numpy(np.ascontiguousarray(value)).to(torch.bfloat16)
        rows = expected.shape[0]
        assert torch.equal(checkpoint.read_rows(name, 0, rows), expected)
        # A block that begins and ends inside a head.
        assert torch.equal(checkpoint.read_rows(name, 3, rows - 8), expected[3 : rows - 5])


def test_rows_of_an_architecture_that_is_not_interleaved_are_left_alone(tmp_path):
    llama_file(tmp_path / "m.gguf", architecture="qwen3", pre="qwen2")
    checkpoint = open_checkpoint(str(tmp_path / "m.gguf"))
    reader = gguf.GGUFReader(str(tmp_path / "m.gguf"))
    stored = next(tensor.data for tensor in reader.tensors if tensor.name == "blk.0.attn_q.weight")
    read = checkpoint.read_rows("model.layers.0.self_attn.q_proj.weight", 0, HEADS * WIDTH)
    assert torch.equal(read, torch.from_numpy(np.array(stored)).to(torch.bfloat16))


def test_llama3_rotary_divisors_become_parameters_and_others_are_refused(tmp_path):
    wavelengths = 2 * np.pi * 10000.0 ** (np.arange(0, WIDTH, 2) / WIDTH)
    smooth = np.clip((8192 / wavelengths - 1) / 3, 0, 1)
    divisors = (1 / ((1 - smooth) / 8 + smooth)).astype(np.float32)
    divisors[-1] = 8.0
    llama_file(tmp_path / "odd.gguf", extra={"rope_freqs.weight": divisors})
    with pytest.raises(UnsupportedModelError, match="rope_freqs"):
        open_checkpoint(str(tmp_path / "odd.gguf"))


def test_damage_is_a_typed_error(tmp_path):
    llama_file(tmp_path / "m.gguf")
    whole = (tmp_path / "m.gguf").read_bytes()
    for length in (0, 3, 20, 300, len(whole) // 2, len(whole) - 40):
        (tmp_path / "cut.gguf").write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            open_checkpoint(str(tmp_path / "cut.gguf"))


def test_foreign_files_are_refused_by_name(tmp_path):
    llama_file(tmp_path / "m.gguf", architecture="gemma3")
    with pytest.raises(UnsupportedModelError, match="gemma3"):
        open_checkpoint(str(tmp_path / "m.gguf"))
    llama_file(tmp_path / "m.gguf", pre="deepseek-llm")
    with pytest.raises(UnsupportedModelError, match="deepseek-llm"):
        open_checkpoint(str(tmp_path / "m.gguf"))


def test_fingerprint_covers_values_names_and_configuration(tmp_path):
    llama_file(tmp_path / "a.gguf")
    first = open_checkpoint(str(tmp_path / "a.gguf")).fingerprint()
    assert first == open_checkpoint(str(tmp_path / "a.gguf")).fingerprint()
    content = bytearray((tmp_path / "a.gguf").read_bytes())
    content[-64] ^= 1
    (tmp_path / "b.gguf").write_bytes(content)
    assert open_checkpoint(str(tmp_path / "b.gguf")).fingerprint() != first
    llama_file(tmp_path / "c.gguf", architecture="qwen3", pre="qwen2")
    assert open_checkpoint(str(tmp_path / "c.gguf")).fingerprint() != first


def test_smollm2_configuration_and_frontend(smollm2):
    assert smollm2.name == "SmolLM2-135M-Instruct"
    assert smollm2.config["architectures"] == ["LlamaForCausalLM"]
    assert smollm2.config["rope_parameters"] == {"rope_type": "default", "rope_theta": 100000.0}
    assert smollm2.config["rms_norm_eps"] == 1e-5
    assert (smollm2.config["num_attention_heads"], smollm2.config["num_key_value_heads"]) == (9, 3)
    assert smollm2.config["tie_word_embeddings"] is True
    assert smollm2.frontend.eos_tokens == (2,)
    assert (smollm2.frontend.bos_text, smollm2.frontend.eos_text) == ("<|im_start|>", "<|im_end|>")
    assert "SmolLM, trained by Hugging Face" in smollm2.frontend.template


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("12345", ["1", "2", "3", "4", "5"]),  # llama.cpp splits "smollm" text at every \p{N} first.
        ("x42y", ["x", "4", "2", "y"]),
        ("a b", ["a", "Ġb"]),  # No space is put before the first word.
        ("<|im_start|>user", ["<|im_start|>", "user"]),
    ],
)
def test_smollm2_tokens(smollm2, text, tokens):
    tokenizer = Tokenizer.from_buffer(smollm2.frontend.tokenizer)
    assert tokenizer.encode(text, add_special_tokens=False).tokens == tokens


def test_smollm2_text_round_trips_and_adds_no_token(smollm2):
    tokenizer = Tokenizer.from_buffer(smollm2.frontend.tokenizer)
    for text in (
        "  two  spaces\n\n\ttab",
        "naïve café 你好 🙂 \u200d",
        json.dumps({"a": [1, 2.5, None]}),
        "don't I'll",
    ):
        encoded = tokenizer.encode(text)
        assert tokenizer.decode(encoded.ids, skip_special_tokens=False) == text
    special = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
    assert {"<|im_start|>", "<|im_end|>", "<|endoftext|>"} <= special
    assert tokenizer.get_vocab_size(with_added_tokens=True) == smollm2.config["vocab_size"]
