"""Tiny models of many architectures with random weights, and how they train."""

from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    PreTrainedModel,
)

from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest, ChatResult
from agentgym.core.trajectory import ModelCall
from agentgym.engines.base import UpdateMetrics
from agentgym.engines.local.engine import LocalEngine
from agentgym.engines.local.model import LoadedModel
from agentgym.models.nano import nano_path
from agentgym.models.template import template_text
from tests.engines.local.rollouts import TOOLS, chat, credit, rollout

WINDOW = {"sliding_window": 16}
MIXED = {"layer_types": ["sliding_attention", "full_attention"], **WINDOW}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "full_attention"],
}
MAMBA = {"mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 8, "n_groups": 1}
LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
}
VISION = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
PACKED: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {},
    "granite": {
        "logits_scaling": 3.0,
        "attention_multiplier": 0.2,
        "residual_multiplier": 0.5,
        "embedding_multiplier": 2.0,
    },
    "qwen3_moe": EXPERTS,
    "smollm3": {},
    "cohere": {"logit_scale": 0.3},
}
PLAIN: dict[str, dict[str, Any]] = {
    "mistral": WINDOW,
    "ministral3": WINDOW,
    "gemma2": {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0, **MIXED},
    "gemma3_text": {"query_pre_attn_scalar": 8, **MIXED},
    "gemma4_text": {
        "global_head_dim": 16,
        "num_global_key_value_heads": 1,
        "num_kv_shared_layers": 0,
        "hidden_size_per_layer_input": 8,
        **MIXED,
    },
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, **MIXED},
    "qwen3_5_text": LINEAR,
    "qwen3_next": {**LINEAR, **EXPERTS, "shared_expert_intermediate_size": 16},
    "lfm2": {"layer_types": ["conv", "full_attention"], "block_multiple_of": 8},
    "olmo3": MIXED,
    "granitemoehybrid": {
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 16,
        "layer_types": ["mamba", "full_attention"],
        "mamba_n_heads": 4,
        "mamba_d_head": 16,
        "mamba_d_state": 8,
        "mamba_n_groups": 1,
    },
    "nemotron_h": {"hybrid_override_pattern": "M*-", **MAMBA},
    "deepseek_v3": LATENT,
    "stablelm": {},
}
TEXT_OF = {"gemma3": "gemma3_text", "qwen3_5": "qwen3_5_text", "mistral3": "mistral"}
"""Models of text and images, and the kind of their text part."""


def save(kind: str, folder: Path, **changes: Any) -> Path:
    """Write a tiny model with random weights, nano's tokenizer and ours template."""
    tokenizer = AutoTokenizer.from_pretrained(nano_path())
    tokenizer.chat_template = template_text("hermes")
    tokenizer.model_max_length = 2048
    tokenizer.save_pretrained(folder)
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 2048,
        "pad_token_id": 0,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
    }
    text |= {"vocab_size_per_layer_input": len(tokenizer)} if "gemma4" in kind else {}
    if kind in TEXT_OF:
        known = PACKED | PLAIN
        text_kind = TEXT_OF[kind]
        text |= {"model_type": text_kind, **known[text_kind], **changes}
        config = AutoConfig.for_model(kind, text_config=text, vision_config=_seen(kind))
        make: Any = AutoModelForImageTextToText
    else:
        text |= (PACKED | PLAIN).get(kind, {}) | changes
        config, make = AutoConfig.for_model(kind, **text), AutoModelForCausalLM
    torch.manual_seed(0)
    model: PreTrainedModel = make.from_config(config, dtype=torch.float32)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(folder)
    return folder


def _seen(kind: str) -> dict[str, Any]:
    if kind == "qwen3_5":
        return {
            "hidden_size": 16,
            "intermediate_size": 32,
            "depth": 1,
            "num_heads": 2,
            "out_hidden_size": 32,
            "num_position_embeddings": 16,
        }
    if kind == "mistral3":
        return {**VISION, "model_type": "pixtral", "head_dim": 8}
    return VISION


def engine_of(folder: Path, **settings: Any) -> LocalEngine:
    """Return an engine that trains an adapter of a model in a folder."""
    given: dict[str, Any] = {"gpu": "none", "lora_rank": 2, "learning_rate": 0.01}
    return LocalEngine.create(
        TrainingConfig.create(model=str(folder), **{**given, **settings})
    )


def request(
    group: int, seed: int, *, session: str = "", tokens: int = 24
) -> ChatRequest:
    return ChatRequest(
        messages=[
            {"role": "system", "content": "Be brief, and call tools."},
            {"role": "user", "content": f"find order {group}"},
        ],
        tools=TOOLS,
        max_tokens=tokens,
        seed=seed,
        session=session,
    )


def continued(old: ChatRequest, result: ChatResult) -> ChatRequest:
    """Return the next turn of a conversation, after a tool's result."""
    said = {"role": "assistant", "content": result.content or "read"}
    heard = {"role": "user", "content": "2 open"}
    return ChatRequest(
        messages=[*old.messages, said, heard],
        tools=old.tools,
        max_tokens=old.max_tokens,
        seed=old.seed + 1000,
        session=old.session,
    )


def recomputed(loaded: LoadedModel, result: ChatResult) -> torch.Tensor:
    """Return a response's log-probabilities by one pass over the whole text."""
    ids = torch.tensor([result.prompt_ids + result.response_ids])
    with torch.no_grad():
        logits = loaded.model(input_ids=ids, use_cache=False).logits[0]
    logprobs = torch.log_softmax(logits[len(result.prompt_ids) - 1 : -1].float(), -1)
    return logprobs.gather(-1, torch.tensor(result.response_ids)[:, None])[:, 0]


def train_step(engine: LocalEngine) -> UpdateMetrics:
    """Sample two turns of four conversations, and learn from their random rewards."""
    step = engine.step
    requests = [request(i // 2, 10 * step + i, session=f"{step}-{i}") for i in range(4)]
    first = chat(engine.policy, requests)
    second = chat(engine.policy, list(map(continued, requests, first)))
    groups = [
        [
            rollout(
                f"{step}-{i}",
                float(i % 2),
                [
                    ModelCall(
                        prompt_ids=result.prompt_ids,
                        response_ids=result.response_ids,
                        logprobs=result.logprobs,
                    )
                    for result in (first[i], second[i])
                ],
            )
            for i in (start, start + 1)
        ]
        for start in (0, 2)
    ]
    trainable = dict.fromkeys(
        ("tool_selection", "parameter_selection", "output_generation"), True
    )
    return engine.update(credit(engine, groups, trainable).batch)
