"""The gain of bfloat16 on a processor, and the distance of its log-probabilities.

    python benchmarks/precision.py --model ./my-model

Both run one after the other, each in a process of its own, with a fresh adapter of rank
16, as in training. The gap is the mean distance, in nats, between a sampled token's
log-probability and the learner's; the same weights gave both. Updates are of the same
answers: with the adapter as it computes here, and as peft computes it, in turns.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

UPDATES = 3
WORDS = "You help people who ask for things, and call tools for them. " * 20
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look up what a word means.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string"}},
            "required": ["word"],
        },
    },
}


def sample(model: str, precision: str, rows: int, tokens: int) -> None:
    """Print what one precision took, and how far the learner is off, as JSON."""
    from agentgym.core.config import TrainingConfig
    from agentgym.core.policy import ChatRequest, ChatResult
    from agentgym.engines.base import TrainingBatch, TrainingSequence
    from agentgym.engines.local.engine import LocalEngine

    settings = {"model": model, "lora_rank": 16, "gpu": "none", "precision": precision}
    engine = LocalEngine.create(TrainingConfig.create(**settings))

    async def answer(count: int, most: int) -> list[ChatResult]:
        asked = [
            ChatRequest(
                [
                    {"role": "system", "content": WORDS},
                    {"role": "user", "content": f"Tell a story about {number}."},
                ],
                [TOOL],
                temperature=1.0,
                max_tokens=most,
                seed=number,
            )
            for number in range(count)
        ]
        return await asyncio.gather(*map(engine.policy.chat, asked))

    asyncio.run(answer(2, 4))
    wall, cpu = time.perf_counter(), time.process_time()
    made = asyncio.run(answer(rows, tokens))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    sequences = [
        TrainingSequence.of_answer(
            number, each.prompt_ids, each.response_ids, each.logprobs
        )
        for number, each in enumerate(made)
    ]
    given = TrainingBatch(sequences)
    found = {"wall": wall, "cpu": cpu, "gap": engine.update(given).logprob_gap}
    found["tokens"] = sum(len(each.response_ids) for each in made)
    found["trained"] = sum(len(each.ids) for each in sequences)
    spent = {"own": 0.0, "peft": 0.0}
    for _ in range(UPDATES):
        for way in spent:
            with as_peft(engine._loaded.model) if way == "peft" else nullcontext():
                began = time.process_time()
                engine.update(given)
                spent[way] += time.process_time() - began
    engine.close()
    print(json.dumps({**found, **spent}))


@contextmanager
def as_peft(model: Any) -> Iterator[None]:
    """Let an adapter compute as peft has it: in float32, whatever the layer below."""
    from agentgym.engines.adapter import compute_in_half, mergeable

    for layer in mergeable(model).values():
        vars(layer).pop("forward", None)
    yield
    compute_in_half(model)


def main() -> None:
    """Compare both, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.alone:
        sample(given.model, given.alone, given.rows, given.tokens)
        return
    rates, updates = {}, {}
    for precision in ("float32", "bf16"):
        words = [sys.executable, __file__, *sys.argv[1:], "--alone", precision]
        ended = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
        found = json.loads(ended.stdout.splitlines()[-1])
        rates[precision] = found["tokens"] / found["cpu"]
        print(
            f"{precision:8} {found['tokens']:5} tokens, {found['wall']:.1f} s, "
            f"{found['cpu']:.1f} CPU-s, {rates[precision]:.1f} tokens a CPU-second, "
            f"gap {found['gap']:.5f} nats"
        )
        total = UPDATES * found["trained"]
        updates[precision] = total / found["own"]
        print(
            f"{'':8} update {updates[precision]:.1f} tokens a CPU-second, and "
            f"{total / found['peft']:.1f} with peft's adapter"
        )
    for name, of in (("sampling", rates), ("update", updates)):
        print(f"{name}, bf16 : float32 = {of['bf16'] / of['float32']:.2f}")


if __name__ == "__main__":
    main()
