"""Train the tokenizer, and later prune it by what the corpus really holds.

python -m recipes.nano.make_tokenizer train --out TOKENIZER
python -m recipes.nano.make_tokenizer prune --tokenizer TOKENIZER \
        --shards SHARDS --out PRUNED
"""

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from recipes.nano.corpus import MAKERS, SUPERVISED
from recipes.nano.held_out import Held
from recipes.nano.tokenizer import TEMPLATE, train
from recipes.nano.values import PSEUDO, module


def texts(count: int) -> Iterator[str]:
    """Yield what the tokenizer is trained on; nothing held out is in it."""
    held = Held.of_scenarios()
    for number in range(count):
        text = MAKERS["general"](random.Random(number)).text()
        if not held.found_in(text):
            yield text
    yield from [" ".join(PSEUDO)] * 2
    rng = random.Random(1)
    yield from ("\n".join(module(rng)) for _ in range(count // 3))


def pruned(model: dict[str, Any], counts: NDArray[np.int64], least: int) -> list[Any]:
    """Return the merges without those that lead only to tokens never trained.

    A token that the corpus does not hold has a random embedding, so a name that
    contains it cannot be copied. Without its merge, the name splits into pieces
    that were trained. Ids do not change.

    Args:
        model: The tokenizer's BPE model: its vocabulary and merges.
        counts: How often each id occurs in the corpus.
        least: Occurrences from which a token counts as trained.
    """
    made = {a + b: (a, b) for a, b in model["merges"]}
    needed: set[str] = set()
    waiting = [t for t, i in model["vocab"].items() if counts[i] >= least]
    while waiting:
        token = waiting.pop()
        if token not in needed:
            needed.add(token)
            waiting += made.get(token, ())
    return [[a, b] for a, b in model["merges"] if a + b in needed]


def main() -> None:
    """Train or prune."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("train", "prune"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--vocabulary", type=int, default=2560)
    parser.add_argument("--conversations", type=int, default=8000)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--shards", type=Path)
    parser.add_argument("--least", type=int, default=200)
    options = parser.parse_args()
    if options.what == "train":
        train(texts(options.conversations), options.vocabulary).save_pretrained(
            options.out
        )
        return
    counts = np.zeros(SUPERVISED, dtype=np.int64)
    for path in sorted(options.shards.glob("*-[0-9]*[0-9].npz")):
        with np.load(path) as shard:
            ids = shard["tokens"] & (SUPERVISED - 1)
        counts += np.bincount(ids, minlength=SUPERVISED)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(options.tokenizer)
    tokenizer.chat_template = TEMPLATE.read_text()
    tokenizer.save_pretrained(options.out)
    file = options.out / "tokenizer.json"
    data = json.loads(file.read_text())
    data["model"]["merges"] = pruned(data["model"], counts, options.least)
    file.write_text(json.dumps(data, ensure_ascii=False))


if __name__ == "__main__":
    main()
