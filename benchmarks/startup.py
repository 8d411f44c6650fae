"""What a command costs beside starting Python: CPU and wall time of each.

    python benchmarks/startup.py --runs 40
    python benchmarks/startup.py --runs 5 --run runs/coding

Runs take turns, so that a busy machine slows all alike. ``--run`` adds ``runs show`` of
a finished run. Python keeps its compiled files, even where the environment forbids it.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from tempfile import TemporaryDirectory

BASE = "python -c pass"
TRAINER = "import agentgym; agentgym.Trainer"


def commands(run: str) -> dict[str, list[str]]:
    """Return what is timed, by name."""
    beside = str(Path(sys.executable).parent)
    agentgym = shutil.which("agentgym", path=f"{beside}:{os.environ['PATH']}")
    if agentgym is None:
        raise SystemExit("agentgym is not installed beside this Python.")
    words = ["scenarios list", "--version", "runs list", "--help", "train --help"]
    words += ["doctor", "train coding --dry-run", f"runs show {run}"]
    timed = {f"agentgym {line}": [agentgym, *line.split()] for line in words}
    python = {code: [sys.executable, "-c", code] for code in ("pass", TRAINER)}
    return {BASE: python["pass"], f'python -c "{TRAINER}"': python[TRAINER], **timed}


def measure(command: list[str], folder: str) -> tuple[float, float]:
    """Return CPU and wall milliseconds of one run."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    before, started = getrusage(RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=folder, env=kept, capture_output=True, check=False)
    wall, after = time.perf_counter() - started, getrusage(RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return 1000 * cpu, 1000 * wall


def main() -> None:
    """Time every command and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--run", default="absent", help="folder of a finished run")
    options = parser.parse_args()
    runs, timed = options.runs, commands(os.path.abspath(options.run))
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in timed}
    with TemporaryDirectory() as folder:
        for _ in range(runs + 1):
            for name, command in timed.items():
                found[name].append(measure(command, folder))
    least = {name: min(pairs[1:])[0] for name, pairs in found.items()}
    print(
        "| command | CPU ms | wall ms | beside python: wall ms | least CPU ms |\n"
        "|---|---:|---:|---:|---:|"
    )
    for name, pairs in found.items():
        cpu, wall = (median(values) for values in zip(*pairs[1:], strict=True))
        extra = wall - median(wall for _, wall in found[BASE][1:])
        print(
            f"| `{name}` | {cpu:.0f} | {wall:.0f} | {extra:+.0f} "
            f"| {least[name] - least[BASE]:+.0f} |"
        )


if __name__ == "__main__":
    main()
