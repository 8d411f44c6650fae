"""A tiny random policy of the shipped one's form, in a folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL = ["<pad>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"]
SKELETON = ["<tool_call>", "</tool_call>", '{"name": "', '", "arguments": {"', '"}}']
TEMPLATE = (
    "{%- set system = messages[0].content if messages and "
    "messages[0].role == 'system' else '' -%}"
    "{%- if system or tools -%}<|system|>{{ system }}"
    "{%- if tools -%}{{ '\nTools:' }}{%- for tool in tools -%}"
    "{{ '\n' + tool.function.name }}({{ tool.function.parameters.properties "
    "| join(', ') }})"
    "{%- endfor -%}{%- endif -%}<|end|>{%- endif -%}"
    "{%- for m in messages if m.role != 'system' -%}<|{{ m.role }}|>"
    "{{ m.content or '' }}{%- for c in m.tool_calls or [] -%}"
    '<tool_call>{"name": "{{ c.function.name }}", "arguments": '
    "{{ c.function.arguments if c.function.arguments is string "
    "else c.function.arguments | tojson }}}</tool_call>{%- endfor -%}<|end|>"
    "{%- endfor -%}{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)
WORDS = "read the file please look up order find open status a b c d 1 2 3 é ü 日本"


def make_tokenizer() -> PreTrainedTokenizerFast:
    bpe = Tokenizer(BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=320,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator([WORDS] * 4, trainer)
    bpe.add_tokens([AddedToken(s, special=False, normalized=False) for s in SKELETON])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token="<pad>",
        eos_token="<|end|>",
        additional_special_tokens=SPECIAL[2:],
        model_max_length=512,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def make_model(vocabulary: int, **changes: Any) -> LlamaForCausalLM:
    torch.manual_seed(0)
    settings = {
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "eos_token_id": 1,
        "bos_token_id": None,
        "initializer_range": 0.15,
    }
    return LlamaForCausalLM(LlamaConfig(**{**settings, **changes}))


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """Let kernels use one thread: with models so small, several only wait."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a tiny Llama that calls tools, with random weights."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(folder)
    make_model(len(tokenizer)).save_pretrained(folder)
    return folder
