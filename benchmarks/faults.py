"""Measure training with faulty tools next to training without, on held-out tasks.

Two runs with the same seed and budget differ in ``--faults`` alone. Both agents, and
the untrained model, attempt the same held-out tasks as they are and with faults.

    uv run python benchmarks/faults.py --episodes 1500
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from machine import machine

from agentgym import TrainingConfig
from agentgym.evaluate.compare import compare
from agentgym.evaluate.intervals import points
from agentgym.evaluate.result import Evaluation
from agentgym.evaluate.rows import share_span
from agentgym.plugins.faults.inject import WITH_FAULTS
from agentgym.train.trainer import Trainer

FAULTS = "timeout=0.1,error=0.1,stale=0.05,renamed=0.05"


def measured(
    trainer: Trainer, agent: str | None, tasks: int, samples: int
) -> Evaluation:
    """Measure an agent, or the untrained model, without faults and with them."""
    return trainer.evaluate(agent=agent, tasks=tasks, samples=samples, baselines=False)


def row(name: str, found: Evaluation) -> str:
    """Return a row of the table."""
    faulty = found.variants[WITH_FAULTS]
    shares = (found.metrics.pass_1, faulty.pass_1, faulty.pass_k)
    return f"| {name} | {' | '.join(map(share_span, shares))} |"


def main() -> None:
    """Train twice, measure, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", default="customer_support")
    parser.add_argument("--faults", default=FAULTS)
    parser.add_argument("--episodes", type=int, default=1500)
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        usual = TrainingConfig.create(
            scenario=given.scenario,
            framework="native",
            episodes=given.episodes,
            seed=given.seed,
            test_tasks=8,
            eval_samples=1,
            forgetting_questions=0,
            tracker="none",
            yes=True,
            output=Path(folder),
        )
        with_faults = usual.replaced(faults=given.faults)
        judge = Trainer(with_faults, progress=False)
        size = given.tasks, given.samples
        found = {"untrained": measured(judge, None, *size)}
        for name, config in (
            ("trained without faults", usual.replaced(name="without")),
            ("trained with faults", with_faults.replaced(name="with")),
        ):
            result = Trainer(config, progress=False).train()
            found[name] = measured(judge, str(result.artifacts.agent), *size)
    print(machine())
    print(f"\n{given.scenario}, {given.episodes} rollouts, faults {given.faults}\n")
    print("| | pass^1 | pass^1 with faults | pass^k with faults |\n|---|---|---|---|")
    print("\n".join(row(name, each) for name, each in found.items()))
    without, trained = list(found.values())[1:]
    for name, sides in (
        ("as they are", (without.metrics, trained.metrics)),
        ("with faults", (without.variants[WITH_FAULTS], trained.variants[WITH_FAULTS])),
    ):
        gain = compare(*sides).differences["pass_1"]
        print(f"\nTraining with faults adds {points(gain)} on tasks {name}.")


if __name__ == "__main__":
    main()
