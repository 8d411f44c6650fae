"""Print a run's verdict; exit with 0 if training helped, else with 1.

python verdict.py runs/NAME
"""

import sys
from pathlib import Path

from agentgym.train.result import TrainingResult


def main(folder: str) -> int:
    """Print the verdict of the run in ``folder``; return the exit code."""
    result = TrainingResult.load(Path(folder))
    if result is None:
        sys.stderr.write(f"{folder} has no result yet: the run has not ended.\n")
        return 1
    before, after = result.baseline, result.metrics
    for name in ("pass_1", "tool_reliability"):
        sides = (f"{100 * each[name].value:.0f} %" for each in (before, after))
        sys.stdout.write(f"{name}: {' -> '.join(sides)}\n")
    sys.stdout.write("\n".join(result.verdict) + "\n")
    return 0 if result.is_better else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
