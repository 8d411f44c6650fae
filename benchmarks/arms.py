"""What the warm start adds, and what training adds, at equal time: a table, a picture.

    uv run python benchmarks/arms.py --scenario coding --minutes 10 --seeds 0 1 2
        [--model FOLDER] [--tasks 64] [--arms both random] [--picture arms.svg]
        [--rest KEY=VALUE …]

Arms: ``warm`` is the warm start alone, ``training`` has no warm start, ``both`` has
both, and ``random`` is ``training`` with rewards shuffled within each group, and
without the cost of failed calls. The column *before* is the untouched model. All arms
have the same seeds, held-out tasks and minutes, measurements included; each runs in a
process of its own. The seeds of an arm are pooled. A run that is there already
(``--output``) is not made again.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partialmethod
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from machine import machine

from agentgym import Trainer, TrainingConfig, TrainingResult
from agentgym.core.settings import read_assignments
from agentgym.evaluate.compare import compare
from agentgym.evaluate.intervals import Estimate, points
from agentgym.evaluate.metrics import Metrics
from agentgym.train import time_limit
from agentgym.train.batch import BatchBuilder
from agentgym.train.time_limit import RunClock

ARMS = {
    "warm": "warm start alone",
    "training": "training alone",
    "both": "both",
    "random": "random rewards",
}
_BUILD = BatchBuilder.build
_WIDTH, _ROW, _LEFT = 640, 56, 140
_COLOURS = ("#888", "#d80", "#06c")


def main() -> None:
    """Run the arms one after the other; print the table and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", default="coding")
    parser.add_argument("--framework", default="native")
    parser.add_argument("--model", default="nano")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--output", type=Path, default=None)
    parser.add_argument("--picture", type=Path, default=Path("arms.svg"))
    parser.add_argument("--rest", nargs="*", default=[], help="KEY=VALUE settings")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        _run(options, options.one, options.seeds[0])
        return
    output = options.output or Path(tempfile.mkdtemp(prefix="agentgym-arms-"))
    output.mkdir(parents=True, exist_ok=True)
    print(
        f"{options.scenario}, {options.model}, {options.minutes:g} minutes an arm, ",
        end="",
    )
    print(f"{options.tasks} held-out tasks, seeds {options.seeds}; {machine()}\n")
    head = "arm | before | after warm start | after training | gain | of it by training"
    print(
        f"| {head} | steps | CPU min |\n|---|---|---|---|---|---|---:|---:|", flush=True
    )
    drawn = []
    for arm in options.arms:
        results = [_result(output, arm, seed) for seed in options.seeds]
        before, warm, after = (
            _pooled([getattr(result, name) for result in results])
            for name in ("baseline", "warm_start", "metrics")
        )
        assert before is not None
        assert after is not None
        drawn.append((ARMS[arm], [before, warm, after]))
        print(_row(ARMS[arm], results, before, warm, after), flush=True)
    options.picture.write_text(_picture(drawn), encoding="utf-8")


def _result(output: Path, arm: str, seed: int) -> TrainingResult:
    """Run an arm in a process of its own, unless that was done; return its result."""
    run = output / f"{output.name}-{arm}-{seed}"
    if TrainingResult.load(run) is None:
        words = [sys.executable, *sys.argv, "--one", arm, "--seeds", str(seed)]
        with (output / f"{arm}-{seed}.log").open("w") as log:
            subprocess.run(
                [*words, "--output", str(output)], check=True, stdout=log, stderr=log
            )
    result = TrainingResult.load(run)
    assert result is not None
    return result


def _run(options: argparse.Namespace, arm: str, seed: int) -> None:
    """Train one arm in this process."""
    given: dict[str, Any] = {"forgetting_questions": 0, "test_tasks": options.tasks}
    given |= read_assignments(options.rest, TrainingConfig)
    if arm == "random":
        given["failure_cost"] = 0.0  # else a reward that is not random
        given["early_stop"] = False  # else it ends when it calls no tool
    config = TrainingConfig.create(
        model=options.model,
        seed=seed,
        output=options.output,
        time=60 * options.minutes,
        tracker="none",
        **given,
    )
    with ExitStack() as stack:
        for owner, name, value in _changes(arm, seed):
            stack.enter_context(patch.object(owner, name, value))
        Trainer(config).train(
            options.scenario,
            framework=options.framework,
            warm_start=arm in ("warm", "both"),
            yes=True,
            name=f"{options.output.name}-{arm}-{seed}",  # also that of its agent
        )


def _changes(arm: str, seed: int) -> Iterator[tuple[Any, str, Any]]:
    """Yield the attributes to replace: owner, name, value."""

    def sizes(self: RunClock, left: float, each: float) -> dict[str, Any]:
        """Keep the number of held-out tasks, so that all arms have the same."""
        kept = {"eval_samples": self._run.config.eval_samples}
        return self.sizes_of_rest(left, each) | kept

    yield RunClock, "sizes", sizes
    if arm == "warm":  # all of the time, and no step
        yield time_limit, "_WARM_START_OF_REST", 1.0
        yield RunClock, "has_room", False
    if arm == "random":
        yield BatchBuilder, "build", partialmethod(_shuffled, Random(seed))


def _shuffled(
    builder: BatchBuilder, random: Random, groups: Any, broadcast: Any
) -> Any:
    """Build a batch in which the attempts at a task have each other's rewards."""
    rewards: dict[str, float] = {}
    for group in groups:
        scored = [each for each in group if each.reward is not None]
        mixed = random.sample([each.reward for each in scored], len(scored))
        ids = [each.rollout_id for each in scored]
        rewards |= dict(zip(ids, mixed, strict=True))
    return _BUILD(
        builder, groups, lambda r: [rewards[r.rollout_id]] * len(r.model_calls)
    )


def _pooled(measured: Sequence[Metrics | None]) -> Metrics | None:
    """Return the metrics of all seeds together; None if one was not measured."""
    tasks = []
    for number, metrics in enumerate(measured):
        if metrics is None:
            return None
        for task in metrics.by_task:
            name = f"{number}/{task.task_id}"
            tasks.append(task.model_copy(update={"task_id": name}))
    return Metrics.of_tasks(tasks)


def _row(
    name: str,
    results: Sequence[TrainingResult],
    before: Metrics,
    warm: Metrics | None,
    after: Metrics,
) -> str:
    """Return an arm's row of the table."""
    own = compare(warm or before, after).differences["pass_1"]
    cells = [
        name,
        *("-" if each is None else _share(each.pass_1) for each in (before, warm)),
        _share(after.pass_1),
        points(compare(before, after).differences["pass_1"]),
        points(own) if any(result.steps for result in results) else "-",
        ", ".join(str(result.steps) for result in results),
        f"{sum(result.cpu_seconds for result in results) / 60:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def _share(found: Estimate) -> str:
    value, low, high = (100 * end for end in (found.value, found.low, found.high))
    return f"{value:.0f} % [{low:.0f}, {high:.0f}]"


def _picture(arms: Sequence[tuple[str, Sequence[Metrics | None]]]) -> str:
    """Draw each arm's pass^1 with its intervals: before, warm start, training."""
    height = _ROW * len(arms) + 40
    size = f'width="{_WIDTH}" height="{height}" font-family="sans-serif"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-size="13">']
    scale = _WIDTH - _LEFT - 30
    for row, (name, measured) in enumerate(arms):
        top = _ROW * row + 24
        parts.append(f'<text x="8" y="{top + 14}">{name}</text>')
        for number, metrics in enumerate(measured):
            if metrics is None:
                continue
            found, y = metrics.pass_1, top + 14 * number
            low, at, high = (
                _LEFT + scale * end for end in (found.low, found.value, found.high)
            )
            colour = _COLOURS[number]
            parts.append(
                f'<line x1="{low:.0f}" x2="{high:.0f}" y1="{y}" y2="{y}" '
                f'stroke="{colour}" stroke-width="2"/>'
                f'<circle cx="{at:.0f}" cy="{y}" r="4" fill="{colour}"/>'
            )
    for share in (0, 25, 50, 75, 100):
        x = _LEFT + scale * share / 100
        parts.append(f'<text x="{x - 12:.0f}" y="{height - 6}">{share} %</text>')
    said = ("before", "after the warm start", "after training")
    for number, (words, colour) in enumerate(zip(said, _COLOURS, strict=True)):
        x = _LEFT + 140 * number
        parts.append(f'<text x="{x}" y="14" fill="{colour}">{words}</text>')
    return "".join([*parts, "</svg>\n"])


if __name__ == "__main__":
    main()
