"""Tokens a CPU-second that a model samples in bfloat16 and in float32, on a processor.

    python benchmarks/precision.py --model ./my-model

Both run one after the other, each in a process of its own, with a fresh adapter of rank
16, as in training: merged in float32, apart in bfloat16.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time

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
    """Print what one precision took, as JSON."""
    from agentgym.core.policy import ChatRequest
    from agentgym.engines.local.loading import load_model
    from agentgym.engines.local.policy import LocalPolicy

    loaded = load_model(model, device="cpu", rank=16, seed=0, precision=precision)  # type: ignore[arg-type]
    policy = LocalPolicy(loaded)

    async def answer(count: int, most: int) -> int:
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
        found = await asyncio.gather(*map(policy.chat, asked))
        return sum(len(each.response_ids) for each in found)

    asyncio.run(answer(2, 4))
    wall, cpu = time.perf_counter(), time.process_time()
    made = asyncio.run(answer(rows, tokens))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    policy.close()
    print(json.dumps({"tokens": made, "wall": wall, "cpu": cpu}))


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
    rates = {}
    for precision in ("float32", "bf16"):
        words = [sys.executable, __file__, *sys.argv[1:], "--alone", precision]
        ended = subprocess.run(words, check=True, capture_output=True, text=True)
        found = json.loads(ended.stdout.splitlines()[-1])
        rates[precision] = found["tokens"] / found["cpu"]
        print(
            f"{precision:8} {found['tokens']:5} tokens, {found['wall']:.1f} s, "
            f"{found['cpu']:.1f} CPU-s, {rates[precision]:.1f} tokens a CPU-second"
        )
    print(f"bf16 : float32 = {rates['bf16'] / rates['float32']:.2f}")


if __name__ == "__main__":
    main()
