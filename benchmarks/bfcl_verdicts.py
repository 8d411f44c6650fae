"""Whether verdicts of saved BFCL rollouts are those of the benchmark's own checker.

    agentgym scenarios fetch bfcl
    agentgym rollout bfcl --model FOLDER --count 100 --save rollouts.jsonl
    python benchmarks/bfcl_verdicts.py rollouts.jsonl

Single requests only: the first answer with calls is judged. Dropped rollouts, which no
one judges, are counted.
"""

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from agentgym.core.files import agents_folder

TESTS = Path(__file__).parents[1] / "tests"
CHECKER = TESTS / "plugins" / "bench" / "bfcl" / "theirs.py"


def calls_of(rollout: dict[str, Any]) -> list[list[str]]:
    """Return name and arguments of each call in the first answer that has any."""
    made = (step.get("tool_calls") for step in rollout["steps"])
    first = next(filter(None, made), [])
    return [[call["name"], call["arguments"]] for call in first]


def main() -> None:
    """Ask the package, and print a table by category."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rollouts", type=Path)
    parser.add_argument("--data", type=Path, help="folder that holds bfcl_eval")
    options = parser.parse_args()
    data = options.data or max(agents_folder().parent.glob("data/bfcl_eval-*"))
    read = list(map(json.loads, options.rollouts.read_text().splitlines()))
    judged = [each for each in read if each["success"] is not None]
    lines = [[each["family"], each["task_id"], calls_of(each)] for each in judged]
    ended = subprocess.run(
        [sys.executable, str(CHECKER), str(data)],
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True,
        text=True,
        check=True,
    )
    verdicts = json.loads(ended.stdout)["verdicts"]
    counts: dict[str, Counter[str]] = {}
    for each, theirs in zip(judged, verdicts, strict=True):
        own = counts.setdefault(each["family"], Counter())
        own["judged"] += 1
        own["right here"] += each["success"]
        own["right there"] += theirs is True
        own["same"] += each["success"] == theirs
    names = ("judged", "right here", "right there", "same")
    print(f"| category | {' | '.join(names)} |\n|---|{'---:|' * len(names)}")
    for family, own in sorted(counts.items()):
        print(f"| {family} | {' | '.join(str(own[name]) for name in names)} |")
    total = sum(counts.values(), Counter[str]())
    print(f"| all | {' | '.join(str(total[name]) for name in names)} |")
    print(f"\n{len(read) - len(judged)} of {len(read)} rollouts were dropped.")


if __name__ == "__main__":
    main()
