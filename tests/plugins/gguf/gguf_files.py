"""Writes tiny models as llama.cpp does, in GGUF files."""

import json
from pathlib import Path

import numpy as np
from gguf import GGUFWriter
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from tests.engines.conftest import SKELETON, SPECIAL, make_model, make_tokenizer

_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def write_gguf(
    path: Path, *, architecture: str = "llama", parts: int = 0
) -> tuple[LlamaForCausalLM, PreTrainedTokenizerBase]:
    """Write a random Llama with its tokenizer; return both.

    Args:
        path: Of the file.
        architecture: What the file says that it is.
        parts: How many files the model is said to be split into; 0 for none.
    """
    tokenizer = make_tokenizer()
    model = make_model(len(tokenizer))
    settings = model.config
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(settings.num_hidden_layers)
    writer.add_context_length(settings.max_position_embeddings)
    writer.add_embedding_length(settings.hidden_size)
    writer.add_feed_forward_length(settings.intermediate_size)
    writer.add_head_count(settings.num_attention_heads)
    writer.add_head_count_kv(settings.num_key_value_heads)
    writer.add_layer_norm_rms_eps(settings.rms_norm_eps)
    writer.add_rope_freq_base(settings.rope_parameters["rope_theta"])
    writer.add_vocab_size(len(tokenizer))
    if parts:
        writer.add_uint16("split.count", parts)
    _add_tokenizer(writer, tokenizer)
    _add_weights(writer, model)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model, tokenizer


def _add_tokenizer(writer: GGUFWriter, tokenizer: PreTrainedTokenizerBase) -> None:
    ids = tokenizer.get_vocab()
    tokens = sorted(ids, key=lambda token: ids[token])
    kinds = dict.fromkeys(SPECIAL, _CONTROL) | dict.fromkeys(SKELETON, _USER_DEFINED)
    inside = json.loads(tokenizer.backend_tokenizer.to_str())
    merges = inside["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([kinds.get(token, _NORMAL) for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(ids["<|user|>"])
    writer.add_eos_token_id(ids["<|end|>"])
    writer.add_pad_token_id(ids["<pad>"])
    writer.add_chat_template(str(tokenizer.chat_template))


def _add_weights(writer: GGUFWriter, model: LlamaForCausalLM) -> None:
    settings = model.config
    held = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    writer.add_tensor("token_embd.weight", held["model.embed_tokens.weight"])
    writer.add_tensor("output_norm.weight", held["model.norm.weight"])
    heads = {
        "attn_q": settings.num_attention_heads,
        "attn_k": settings.num_key_value_heads,
    }
    for layer in range(settings.num_hidden_layers):
        for theirs, ours in _LAYER.items():
            weight = held[f"model.layers.{layer}.{ours}.weight"]
            if theirs in heads:
                weight = _interleaved(weight, heads[theirs])
            writer.add_tensor(f"blk.{layer}.{theirs}.weight", weight)


def _interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """Return rows in llama.cpp's order for rotary positions."""
    rows, columns = weight.shape
    apart = weight.reshape(heads, 2, rows // heads // 2, columns)
    return np.ascontiguousarray(apart.swapaxes(1, 2).reshape(rows, columns))
