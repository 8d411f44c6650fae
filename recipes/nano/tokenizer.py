"""Train the policy's tokenizer: byte-level BPE that keeps identifiers copyable.

Digits and capitals stand alone; a leading space joins only common words, so a name
has the same tokens in a sentence, in a path and between JSON quotes; the skeleton of
a tool call is a handful of added tokens.
"""

import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

from recipes.nano import pools, words
from recipes.nano.conversation import END, PAD, SPECIAL

SKELETON = (
    "<tool_call>",
    "</tool_call>",
    '{"name": "',
    '", "arguments": {"',
    '", "arguments": {}',
    '": "',
    '": ',
    '", "',
    ', "',
    '"}}',
    '"}',
    "}}",
    ": str",
    ": int",
    ": bool",
    ": float",
    " = null",
    " = true",
    " = false",
    ' = "',
    "): ",
    "\nTools:\n",
)
TEMPLATE = Path(__file__).with_name("chat_template.jinja")


def common_words() -> list[str]:
    """Return the words that carry their leading space, longest first."""
    text = " ".join(
        [*(f"{a} {b}" for a, b in words.ACTIONS.values())]
        + [nouns for nouns, _ in words.OBJECTS.values()]
        + [mentions for _, _, mentions in words.ARGUMENTS.values()]
        + [*pools.OPENERS, *pools.CLOSERS, *pools.SYSTEMS, *pools.RULES]
        + [*pools.REASONS, *pools.OFF_TOPIC, *pools.EXTRA_WORDS]
    )
    found = set(re.findall(r"[a-z]+", text.lower())) - pools.HELD_OUT_WORDS
    return sorted(found, key=lambda word: (-len(word), word))


def pattern() -> str:
    """Return the splitting pattern."""
    plain = "|".join(common_words())
    return (
        rf" (?:{plain})(?![a-z0-9_/@(-]|\.[a-z0-9])"
        r"|\\[nt\"\\]|[a-z]+|[A-Z]|[0-9]|\n| {2,}| |[^\sa-zA-Z0-9]|\s"
    )


def pseudo_words(seed: int, count: int) -> Iterator[str]:
    """Yield invented words, so that unseen names split into a few common pieces."""
    rng = random.Random(seed)
    onsets = "b br c ch cl d dr f fl g gr h j k l m n p pl pr qu r s sh sk sl sp st t tr v w z".split()
    nuclei = "a e i o u a e i o ai ea ee ou oo".split()
    codas = " l m n r s t d k p ng nt st ck x ll ss".split(" ")
    for _ in range(count):
        yield "".join(
            rng.choice(onsets) + rng.choice(nuclei) + rng.choice(codas)
            for _ in range(rng.choice((1, 1, 2, 2)))
        )


def train(texts: Iterable[str], vocab_size: int = 2048) -> PreTrainedTokenizerFast:
    """Train on ``texts`` and return the tokenizer with its chat template."""
    bpe = Tokenizer(BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern()), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    added = [s for s in SKELETON if s not in SPECIAL]
    trainer = BpeTrainer(
        vocab_size=vocab_size - len(added),
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    cut = re.compile("|".join(map(re.escape, [*SPECIAL, *SKELETON])))
    bpe.train_from_iterator((p for t in texts for p in cut.split(t)), trainer)
    bpe.add_tokens([AddedToken(s, special=False, normalized=False) for s in added])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=list(SPECIAL[2:]),
        model_max_length=1024,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = TEMPLATE.read_text()
    return tokenizer
