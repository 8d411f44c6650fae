"""What it costs to look at a validation, beside measuring it: CPU milliseconds.

uv run python benchmarks/watch.py --tasks 96
"""

import argparse
import time

from machine import machine

from agentgym.evaluate.metrics import Metrics, TaskResult
from agentgym.evaluate.outlook import doubts
from agentgym.train.measure.watch import Watch


def main() -> None:
    """Time both looks on a made-up measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=96)
    parser.add_argument("--times", type=int, default=500)
    options = parser.parse_args()
    found = measured(options.tasks)
    watch = Watch()
    begun = time.process_time()
    for step in range(options.times):
        watch.look(step, found, found, 10)
    looked = time.process_time()
    for _ in range(options.times):
        doubts(found)
    doubted = time.process_time()
    print(f"{machine()}\n")
    print(f"a validation: {(looked - begun) / options.times * 1e3:.3f} ms")
    print(f"the baseline: {(doubted - looked) / options.times * 1e3:.3f} ms")


def measured(tasks: int) -> Metrics:
    """Return a measurement of tasks of 19 families, four attempts each."""
    return Metrics.of_tasks(
        [
            TaskResult(
                task_id=str(number),
                family=str(number % 19),
                attempts=4,
                successes=number % 5,
                sums={"pass_1": (float(number % 5), 4.0), "right_tool": (3.0, 4.0)},
                rewards=(0.0, 1.0, 0.5, 0.5),
                calls={"find": 3, "read": 2, "edit": number % 3},
            )
            for number in range(tasks)
        ]
    )


if __name__ == "__main__":
    main()
