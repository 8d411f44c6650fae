"""What one GPU does with each engine: fills the tables of docs/gpu_training.md.

    agentgym engine install vllm      # else its columns stay empty
    python benchmarks/gpu.py [--architectures 0.5b 1.5b] [--episodes 64] [--price 0.45]
    python benchmarks/gpu.py --goal Qwen/Qwen2.5-1.5B-Instruct --price 0.45

Models of Qwen2.5's shapes with random weights, so nothing is downloaded: see
random_qwen.py. Each engine starts in a process of its own, plays conversations of three
model calls (engine.py) and learns from them once. ``--goal`` downloads a model instead,
and trains it on customer_support until the goal holds. ``--gpu none`` shows on a CPU
that it works; its figures are no GPU's.
"""

import argparse
import asyncio
import resource
import subprocess
import time
from multiprocessing import get_context
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from engine import batch, episode, to_groups
from machine import machine
from random_qwen import EPISODES, write

ENGINES = ("local", "vllm")
GROUP, WARM_UP = 8, 8


class Figures(NamedTuple):
    """Of one engine with one model."""

    start: float
    sampling: float
    update: float
    step: float
    hours: float
    dollars: float | None
    held: float
    gap: float


ROWS = {
    "start": ("until it answers, s", ".0f"),
    "sampling": ("sampling, tokens/s", ",.0f"),
    "update": ("one update, s", ".2f"),
    "step": ("one step, s", ".1f"),
    "hours": (f"{EPISODES:,} episodes without tools and agents, hours", ".2f"),
    "dollars": ("the same, $", ".2f"),
    "held": ("memory of the learner's process, GiB", ".2f"),
    "gap": ("mean distance of log-probabilities, nats", ".1e"),
}


async def play(policy: Any, episodes: int, in_flight: int) -> list[Any]:
    """Play episodes in groups of the same task, so many at a time."""
    slots = asyncio.Semaphore(in_flight)

    async def one(index: int) -> Any:
        async with slots:
            return await episode(policy, index // GROUP, index % GROUP)

    try:
        return await asyncio.gather(*map(one, range(episodes)))
    finally:
        await policy.release()


def measure(config: Any, episodes: int, in_flight: int, price: float | None) -> Figures:
    """Start an engine, play episodes, and learn from them once."""
    import torch

    from agentgym.engines.registry import create_engine

    begun = time.perf_counter()
    engine = create_engine(config)
    try:
        with engine.sampling():
            start = time.perf_counter() - begun
            played = asyncio.run(play(engine.policy, WARM_UP, WARM_UP))
        engine.update(batch(engine, to_groups(played)))  # memory is taken
        with engine.sampling():
            begun = time.perf_counter()
            played = asyncio.run(play(engine.policy, episodes, in_flight))
            sampled = time.perf_counter() - begun
        made = batch(engine, to_groups(played))
        begun = time.perf_counter()
        gap = engine.update(made).logprob_gap
        updated = time.perf_counter() - begun
    finally:
        engine.close()
    held = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if torch.cuda.is_available() and config.gpu != "none":
        held = torch.cuda.max_memory_reserved()
    tokens = sum(len(result.response_ids) for calls in played for _, result in calls)
    hours = EPISODES / episodes * (sampled + updated) / 3600
    return Figures(
        start=start,
        sampling=tokens / sampled,
        update=updated,
        step=sampled + updated,
        hours=hours,
        dollars=None if price is None else price * hours,
        held=held / 2**30,
        gap=gap,
    )


def until_goal(model: str, gpu: str, price: float | None, budget: int) -> None:
    """Train a model on customer_support, and print the table of that run."""
    from agentgym import Trainer
    from agentgym.core.config import TrainingConfig

    with TemporaryDirectory() as folder:
        config = TrainingConfig.create(
            scenario="customer_support",
            model=model,
            gpu=gpu,
            episodes=budget,
            tracker="none",
            yes=True,
            output=Path(folder),
        )
        result = Trainer(config).train()
    hours = result.wall_seconds / 3600
    before, after = (100 * m.pass_1.value for m in (result.baseline, result.metrics))
    rows = {
        "ended by": result.stopped,
        "episodes": f"{result.episodes:,}",
        "hours": f"{hours:.2f}",
        "$": "" if price is None else f"{price * hours:.2f}",
        "held-out pass^1 before and after, %": f"{before:.0f}, {after:.0f}",
    }
    print(
        f"| one run until the goal | `{result.config['engine']}`, {model} |\n|---|---:|"
    )
    for label, cell in rows.items():
        print(f"| {label} | {cell} |")


def card() -> str:
    """Return the GPU's name and driver."""
    if (tool := which("nvidia-smi")) is None:
        return "no GPU"
    words = [
        tool,
        "--query-gpu=name,memory.total,driver_version",
        "--format=csv,noheader",
    ]
    return subprocess.run(words, capture_output=True, text=True).stdout.strip()


def main() -> None:
    """Measure each engine with each model, and print the table of the docs."""
    from agentgym.core.config import TrainingConfig
    from agentgym.engines.registry import check_engine
    from agentgym.errors import AgentGymError

    parser = argparse.ArgumentParser()
    sizes = ["0.5b", "1.5b", "3b", "7b"]
    parser.add_argument("--architectures", nargs="+", default=sizes)
    parser.add_argument("--engines", nargs="+", default=ENGINES, choices=ENGINES)
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--gpu", default="local", help="or none, to try it on a CPU")
    parser.add_argument("--price", type=float, help="of the GPU, in $ an hour")
    parser.add_argument("--goal", metavar="MODEL", help="train it until the goal")
    parser.add_argument("--budget", type=int, default=EPISODES, help="of --goal")
    options = parser.parse_args()
    if options.goal is not None:
        print(f"{card()}; {machine()}.\n")
        until_goal(options.goal, options.gpu, options.price, options.budget)
        return
    found: dict[str, Figures] = {}
    notes: list[str] = []
    for architecture in options.architectures:
        with TemporaryDirectory() as name:
            write(architecture, Path(name))
            for engine in options.engines:
                column = f"`{engine}`, {architecture}"
                config = TrainingConfig.create(
                    engine=engine,
                    model=name,
                    gpu=options.gpu,
                    lora_rank=16,
                    max_episode_tokens=2048,
                    output=Path(name) / "runs",
                )
                try:
                    memory = check_engine(config).memory
                    with get_context("spawn").Pool(1) as pool:
                        given = (config, options.episodes, options.in_flight)
                        given = (*given, options.price)
                        found[column] = pool.apply(measure, given)
                    notes.append(f"{column}: memory was estimated, {memory}.")
                except AgentGymError as error:
                    notes.append(f"{column} is left out: {error}")
    print(f"{card()}; {machine()}.")
    print(f"LoRA rank 16, {options.episodes} episodes.\n")
    if found:
        print(f"| | {' | '.join(found)} |\n|---|{'---:|' * len(found)}")
    for field, (label, form) in ROWS.items():
        values = [getattr(figures, field) for figures in found.values()]
        cells = ["" if value is None else format(value, form) for value in values]
        if cells:
            print(f"| {label} | {' | '.join(cells)} |")
    print("\n" + "\n".join(notes))


if __name__ == "__main__":
    main()
