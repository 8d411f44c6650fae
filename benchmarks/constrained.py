"""What `--set constrain=calls` brings a model that is not trained; prints a table.

    python benchmarks/constrained.py [--model nano] [--tasks 100] [--samples 4]

Each scenario's held-out tasks are attempted with and without: right tool, tool
reliability, and pass^1, in percent with 95 % intervals as `agentgym eval` gives them.
"""

import argparse
import json
import subprocess
import sys
from typing import Any

SCENARIOS = ("coding", "flight_booking")
METRICS = {
    "right tool": "right_tool",
    "right arguments": "right_arguments",
    "tool reliability": "tool_reliability",
    "pass^1": "pass_1",
}


def evaluated(scenario: str, options: argparse.Namespace, constrain: str) -> Any:
    """Return what `agentgym eval --json` says."""
    words = [sys.executable, "-m", "agentgym", "eval", scenario, "--json"]
    words += ["--model", options.model, "--tasks", str(options.tasks)]
    words += ["--samples", str(options.samples), "constrain", constrain]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(ended.stderr)
    return json.loads(ended.stdout)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="nano")
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--scenarios", nargs="*", default=SCENARIOS)
    options = parser.parse_args()
    print("| scenario | calls | " + " | ".join(METRICS) + " |")
    print("|---" * (len(METRICS) + 2) + "|")
    for scenario in options.scenarios:
        for constrain in ("none", "calls"):
            found = evaluated(scenario, options, constrain)["metrics"]
            cells = [f"{100 * found[key]['value']:.0f} %" for key in METRICS.values()]
            label = "constrained" if constrain == "calls" else "free"
            print(f"| {scenario} | {label} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
