"""Measure the stopping rule of training on simulated runs, whose truth is known.

Each simulated run has families of tasks that are learned at different times, training
tasks chosen by success, validations, and a budget of 157 steps. The table has, for each
kind of run, why runs ended, how many steps they took, and

- waste: the share of steps after the policy was within 2 points of its last level,
- lost: the points that a run of the whole budget would have gained on top,
- false goal: the share of runs that claimed a goal which the policy had not reached.

    uv run python benchmarks/stopping.py --runs 100
"""

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from multiprocessing import Pool

import numpy as np
from numpy.typing import NDArray

from agentgym.evaluate.metrics import Metrics, TaskResult
from agentgym.train.stopping import Stopping

Curves = NDArray[np.float64]
"""The probability of success, by step and family."""
FAMILIES, STEPS, EVERY, TASKS, GROUP = 16, 157, 5, 8, 8
VALIDATION, HELD_OUT = 64, 384
GOAL = 0.95


def logistic(x: Curves) -> Curves:
    """Return the logistic function."""
    return 1 / (1 + np.exp(-x))


def sigmoids(random: np.random.Generator, last: float, *, never: float = 0) -> Curves:
    """Half of the families are solved; the others are learned until step ``last``.

    The share ``never`` of these is not learned at all.
    """
    solved = random.random(FAMILIES) < 0.5
    base = np.where(
        solved, random.uniform(0.9, 1, FAMILIES), random.uniform(0, 0.35, FAMILIES)
    )
    top = np.where(
        solved,
        np.maximum(base, random.uniform(0.93, 1, FAMILIES)),
        random.uniform(0.85, 1, FAMILIES),
    )
    top = np.where(random.random(FAMILIES) < never, base, top)
    middle = random.uniform(0.08 * last, last, FAMILIES)
    width = random.uniform(0.05 * last, 0.13 * last, FAMILIES) + 0.5
    at = logistic((np.arange(STEPS + 1)[:, None] - middle) / width)
    return base + (top - base) * (at - at[0]) / (1 - at[0])


def wobbling(curves: Curves, random: np.random.Generator) -> Curves:
    """Let each family's log-odds wander, as a policy does from step to step."""
    odds = np.log(np.clip(curves, 0.01, 0.99) / (1 - np.clip(curves, 0.01, 0.99)))
    drift = np.zeros(FAMILIES)
    for row in odds[1:]:
        drift = 0.85 * drift + random.normal(0, 0.35, FAMILIES)
        row += drift
    return logistic(odds)


def rising(random: np.random.Generator, to: float, pace: float) -> Curves:
    """All families rise together from 60 % to ``to``, by an exponential."""
    at = np.arange(STEPS + 1)[:, None]
    return 0.6 + (to - 0.6) * (1 - np.exp(-at / pace)) + np.zeros(FAMILIES)


def late(random: np.random.Generator) -> Curves:
    """Nearly nothing succeeds until steps 25 to 45."""
    middle, width = random.uniform(25, 45, FAMILIES), random.uniform(2, 5, FAMILIES)
    at = logistic((np.arange(STEPS + 1)[:, None] - middle) / width)
    base = random.uniform(0, 0.06, FAMILIES)
    return base + (random.uniform(0.5, 0.95, FAMILIES) - base) * at


def collapsing(random: np.random.Generator) -> Curves:
    """Success rises until step 20, and halves around step 45."""
    at = np.arange(STEPS + 1)[:, None]
    return sigmoids(random, 20) * (1 - 0.5 * logistic((at - 45) / 4))


KINDS: dict[str, Callable[[np.random.Generator], Curves]] = {
    "improves until step 25": lambda r: sigmoids(r, 25),
    "improves until step 50": lambda r: sigmoids(r, 50),
    "improves until step 130": lambda r: sigmoids(r, 130),
    "a part never improves": lambda r: sigmoids(r, 30, never=0.4),
    "improves, noisy": lambda r: wobbling(sigmoids(r, 30), r),
    "rises smoothly": lambda r: rising(r, 0.93, r.uniform(6, 20)),
    "takes off late": late,
    "flat": lambda r: np.repeat(sigmoids(r, 25)[:1], STEPS + 1, 0),
    "flat, noisy": lambda r: wobbling(np.repeat(sigmoids(r, 25)[:1], STEPS + 1, 0), r),
    "collapses": collapsing,
    "just below the goal": lambda r: rising(r, GOAL - 0.005, 5),
    "at the goal": lambda r: rising(r, GOAL, 5),
    "above the goal": lambda r: rising(r, 0.99, 5),
}


def metrics_of(random: np.random.Generator, chances: Curves, tasks: int) -> Metrics:
    """Measure a policy on new tasks, which take the families in turn."""
    families = np.arange(tasks) % FAMILIES
    solved = (random.random(tasks) < chances[families]).tolist()
    pairs = enumerate(zip(families, solved, strict=True))
    return Metrics.of_tasks([task(f"v{n}", f, [s]) for n, (f, s) in pairs], k=1)


def task(name: str, family: int, solved: Sequence[bool]) -> TaskResult:
    """Return the result of the attempts at a task."""
    wins = sum(solved)
    return TaskResult(
        task_id=name,
        family=str(family),
        attempts=len(solved),
        successes=wins,
        sums={"pass_1": (wins, len(solved)), "tool_reliability": (1, 1)},
        rewards=tuple(map(float, solved)),
    )


def run(job: tuple[str, int]) -> tuple[str, int, float, float, bool]:
    """Simulate a run; return why and when it ended, its waste, its loss, false goal."""
    kind, seed = job
    random = np.random.default_rng(seed)
    curves = np.clip(KINDS[kind](random), 0, 1)
    level = curves.mean(1)
    stopping, known = Stopping(), np.full(FAMILIES, 0.5)
    goal = {"pass_1": GOAL}
    stopping.add_validation(0, metrics_of(random, curves[0], HELD_OUT), goal)
    end, step = None, 0
    for step in range(1, STEPS + 1):
        share = known * (1 - known) + 0.05
        chosen = random.choice(FAMILIES, TASKS, p=share / share.sum())
        results = []
        for number, family in enumerate(chosen):
            # Attempts at one task mostly end alike.
            chance = curves[step - 1, family]
            own = random.beta(max(1.5 * chance, 1e-3), max(1.5 * (1 - chance), 1e-3))
            solved = (random.random(GROUP) < own).tolist()
            known[family] += 0.4 * (np.mean(solved) - known[family])
            results.append(task(f"t{step}-{number}", family, solved))
        mixed = sum(0 < result.successes < GROUP for result in results)
        solved = sum(result.successes == GROUP for result in results)
        stopping.add_step(step - 1, results, goal, (mixed, solved, TASKS))
        if step % EVERY == 0:
            found = metrics_of(random, curves[step], VALIDATION)
            stopping.add_validation(step, found, goal)
            if end := stopping.end(step, STEPS - step, goal):
                break
    last = level.max() if kind == "collapses" else level[-1]
    needed = int(np.argmax(level >= last - 0.02))
    kept = max(level[n] for n in range(0, step + 1, EVERY))
    return (
        end or "budget",
        step,
        max(0, step - needed) / step,
        max(0.0, last - kept),
        end == "goal" and level[step] < GOAL,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    print("| run | ended by | steps | waste | lost | false goal |")
    print("|---|---|---|---|---|---|")
    with Pool(options.processes) as pool:
        for kind in KINDS:
            found = pool.map(run, [(kind, seed) for seed in range(options.runs)])
            ends, steps, waste, lost, wrong = zip(*found, strict=True)
            why = ", ".join(f"{e} {n}" for e, n in Counter(ends).most_common())
            low, middle, high = np.percentile(steps, (10, 50, 90))
            print(
                f"| {kind} | {why} | {middle:.0f} ({low:.0f} to {high:.0f}) | "
                f"{100 * np.mean(waste):.0f} % | {100 * np.mean(lost):.1f} | "
                f"{100 * np.mean(wrong):.0f} % |",
                flush=True,
            )


if __name__ == "__main__":
    main()
