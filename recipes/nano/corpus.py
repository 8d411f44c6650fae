"""Write the corpus as token shards.

    python -m recipes.nano.corpus general --out /tmp/nano/shards --count 40 --seed 1

Each shard holds uint16 tokens whose top bit says that the model writes them, and
the offsets of its conversations.
"""

import argparse
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from recipes.nano import coding, customer_support, general, support
from recipes.nano.conversation import Conversation
from recipes.nano.held_out import Held

SUPERVISED = 1 << 15
Maker = Callable[[random.Random], Conversation]
MAKERS: dict[str, Maker] = {
    "general": general.conversation,
    "support": support.conversation,
    "coding": coding.conversation,
    "customer_support": customer_support.conversation,
}


def encode(
    tokenizer: PreTrainedTokenizerFast, talk: Conversation
) -> NDArray[np.uint16]:
    """Return the tokens of a conversation, those the model writes marked."""
    backend = tokenizer.backend_tokenizer
    tokens: list[int] = []
    for text, ours in talk.pieces():
        ids = backend.encode(text, add_special_tokens=False).ids
        tokens += [i | SUPERVISED for i in ids] if ours else ids
    return np.asarray(tokens, dtype=np.uint16)


def conversations(kind: str, seed: int, count: int, held: Held) -> list[Conversation]:
    """Return ``count`` conversations of a kind that hold nothing held out."""
    made: list[Conversation] = []
    number = 0
    while len(made) < count:
        talk = MAKERS[kind](random.Random(f"{kind}/{seed}/{number}"))
        number += 1
        if talk.turns and not held.found_in(talk.text()):
            made.append(talk)
    return made


def main() -> None:
    """Write shards of one kind until ``--count`` are there."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=sorted(MAKERS))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--size", type=int, default=4000)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    held = Held.of_scenarios()
    for index in range(options.first, options.first + options.count):
        talks = conversations(options.kind, index, options.size, held)
        encoded = [e for e in (encode(tokenizer, t) for t in talks) if len(e) < 1024]
        offsets = np.cumsum([0, *map(len, encoded)])
        target = options.out / f"{options.kind}-{index:04}.npz"
        partial = target.with_suffix(".tmp.npz")
        np.savez(partial, tokens=np.concatenate(encoded), offsets=offsets)
        partial.rename(target)
        tokens = np.concatenate(encoded)
        share = float((tokens >= SUPERVISED).mean())
        print(
            f"{target.name}: {len(encoded)} talks, {len(tokens)} tokens, {share:.0%} ours"
        )


if __name__ == "__main__":
    main()
