"""How sampling shares the cores with other processes; prints a Markdown table.

    uv run python benchmarks/shared_cores.py --model FOLDER [--rounds 3]

Threads of one kernel wait for each other, which takes long where others want the cores.
Each row is one way to choose their number, as set by environment variables: a process
alone, and several at once, each of which answers two requests. In each round the ways
take turns.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import time
from statistics import median

from machine import machine

WAYS = {
    "by the time of the steps": {},
    "all, OMP_WAIT_POLICY=passive": {"OMP_WAIT_POLICY": "passive"},
    "one, OMP_NUM_THREADS=1": {"OMP_NUM_THREADS": "1"},
}
REQUESTS = 2


def sample(model: str, tokens: int) -> None:
    """Print tokens a second, and CPU-seconds for 100 tokens, of this process."""
    from agentgym.core.policy import ChatRequest, ChatResult
    from agentgym.engines.local.policy import LocalPolicy

    policy = LocalPolicy.load(model, gpu="none")

    async def ask() -> list[ChatResult]:
        asked = (
            ChatRequest(
                messages=[{"role": "user", "content": f"Tell story {seed}."}],
                temperature=1.0,
                max_tokens=tokens,
                seed=seed,
            )
            for seed in range(REQUESTS)
        )
        return await asyncio.gather(*map(policy.chat, asked))

    asyncio.run(ask())
    wall, cpu = time.perf_counter(), time.process_time()
    count = sum(len(each.response_ids) for each in asyncio.run(ask()))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    policy.close()
    print(count / wall, 100 * cpu / count)


def run(options: argparse.Namespace, way: str, processes: int) -> tuple[float, float]:
    """Return the means of so many processes that sample at once."""
    words = [sys.executable, __file__, "--model", options.model]
    words += ["--tokens", str(options.tokens), "--alone"]
    unset = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS"}
    given = {k: v for k, v in os.environ.items() if k not in unset} | WAYS[way]
    started = [
        subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=given)
        for _ in range(processes)
    ]
    lines = [each.communicate()[0].splitlines()[-1].split() for each in started]
    speeds, costs = zip(*(map(float, line) for line in lines), strict=True)
    return sum(speeds) / processes, sum(costs) / processes


def main() -> None:
    """Measure every way to wait, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        sample(options.model, options.tokens)
        return
    print(f"{options.model}; {machine()}; load {os.getloadavg()[0]:.1f} before\n")
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for _ in range(options.rounds):
        for way in WAYS:
            for count in options.processes:
                found.setdefault((way, count), []).append(run(options, way, count))
    print("Tokens a second of a process (CPU-seconds for 100 tokens)\n")
    heads = " | ".join(f"{count} at once" for count in options.processes)
    print(f"| threads of a kernel | {heads} |\n|---|{'---|' * len(options.processes)}")
    for way in WAYS:
        cells = []
        for count in options.processes:
            speeds, costs = zip(*found[way, count], strict=True)
            cells.append(f"{median(speeds):.1f} ({median(costs):.1f})")
        print(f"| {way} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
