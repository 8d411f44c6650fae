"""What the plain path costs beside the packed one; prints a Markdown table.

    python benchmarks/paths.py [--model nano] [--episodes 64] [--in-flight 32]

The same model takes both: packed tokens, and one sequence at a time, as models with
windows or linear attention do. Seconds are those of the clock, with all cores.
Episodes are those of ``engine.py``.
"""

import argparse
import time
from dataclasses import replace
from typing import Any

from engine import play, to_groups, train


def main() -> None:
    """Measure both paths."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="nano")
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--in-flight", type=int, default=32)
    options = parser.parse_args()

    from agentgym.core.config import TrainingConfig
    from agentgym.engines.local.engine import LocalEngine
    from agentgym.engines.local.loading import load_model
    from agentgym.models.folder import new_rank

    config = TrainingConfig.create(model=options.model, gpu="none")
    rank = new_rank(config.model, config.lora_rank)
    print("| path | sampling, s | update, s |\n|---|---|---|")
    taken: list[tuple[float, float]] = []
    for path in ("packed", "plain"):
        loaded = load_model(options.model, device="cpu", rank=rank, seed=0)
        if path == "plain":
            loaded = replace(loaded, traits=replace(loaded.traits, obstacles=(path,)))
        engine = LocalEngine(config, loaded)
        played, sampling = clocked(
            lambda e=engine: play(e.policy, options.episodes, options.in_flight)
        )
        _, update = clocked(lambda e=engine, p=played: train(e, to_groups(p)))
        engine.close()
        taken.append((sampling, update))
        print(f"| {path} | {sampling:.1f} | {update:.1f} |", flush=True)
    ratios = [plain / packed for packed, plain in zip(*taken, strict=True)]
    print(f"| times as long | {ratios[0]:.1f} | {ratios[1]:.1f} |")


def clocked(work: Any) -> tuple[Any, float]:
    """Return what ``work`` returned, and the seconds that it took."""
    before = time.perf_counter()
    result = work()
    return result, time.perf_counter() - before


if __name__ == "__main__":
    main()
