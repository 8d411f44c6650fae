"""How well a real model is trained, in how much time: one table, and curves as SVG.

    python benchmarks/real_models.py --model FOLDER [--only app] [--minutes 15]
        [--curves docs/curves] [precision=bf16 …]

Rows: ``app``, a LangGraph agent of its author's with a file of 120 requests, 24 of them
held out; ``arithmetic`` and ``helper``, the same for two public agents, of which the
folder of ``--checkouts`` has clones (langchain-ai's langchain-academy, langgraph-101);
``--check`` scores their rollouts by a function, without the calls that are needed;
``coding``, the built-in scenario; ``bfcl``, simple Python and multiple calls of BFCL,
of functions that were not trained (``agentgym scenarios fetch bfcl`` first);
``speed``, tokens a second beside transformers' ``generate`` and a plain loop with peft.
``--minutes`` is the time of each run. Further ``key=value`` are settings of the runs.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app_requests import APPS, App, tasks_file
from machine import machine

from agentgym import Trainer, TrainingConfig, TrainingResult
from agentgym.errors import AgentGymError
from agentgym.evaluate import events
from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.plain_progress import LinesProgress

WISHES = {"app": 15, "arithmetic": 15, "helper": 15, "coding": 60, "bfcl": 60}
"""Minutes of each run."""
GOAL = 0.95
"""Of pass^1, on validation tasks."""


@dataclass
class Row:
    """What a run reached; ``curve`` has minutes and pass^1 on validation tasks."""

    name: str
    result: TrainingResult
    minutes: float
    curve: list[tuple[float, float]] = field(default_factory=list)


class Watched(LinesProgress):
    """Writes a run's lines, and notes when validation tasks were measured."""

    def __init__(self) -> None:
        super().__init__()
        self.began = time.monotonic()
        self.curve: list[tuple[float, float]] = []

    def __call__(self, event: events.Event) -> bool | None:
        """Note the start (held-out tasks, before training) or a point of the curve."""
        if isinstance(event, events.BaselineMeasured | events.Validated):
            minutes = (time.monotonic() - self.began) / 60
            self.curve.append((minutes, event.metrics.pass_1.value))
        return super().__call__(event)


def app(options: argparse.Namespace, folder: Path) -> Row:
    """Train the clinic's graph on its file of requests."""
    return _trained_app(
        "app", APPS["clinic"], Path(__file__).parents[1], options, folder
    )


def arithmetic(options: argparse.Namespace, folder: Path) -> Row:
    """Train the agent of langchain-academy's first module."""
    return _public("arithmetic", options, folder)


def helper(options: argparse.Namespace, folder: Path) -> Row:
    """Train the first agent of langgraph-101."""
    return _public("helper", options, folder)


def _public(name: str, options: argparse.Namespace, folder: Path) -> Row:
    known = APPS[name]
    if options.checkouts is None:
        raise AgentGymError(f"--checkouts FOLDER has no clone of {known.source}.")
    checkout = options.checkouts / known.source.partition("/")[2]
    return _trained_app(name, known, checkout, options, folder)


def _trained_app(
    name: str, known: App, checkout: Path, options: argparse.Namespace, folder: Path
) -> Row:
    """Train an app on 120 requests, 24 of them held out."""
    places = [str(checkout / known.folder), str(Path(__file__).parent)]
    sys.path[:0] = places
    earlier = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (*places, earlier)))
    tasks = tasks_file(known, folder / f"{name}.jsonl", has_calls=not options.check)
    given: dict[str, Any] = {"agent": known.agent, "tasks": tasks}
    if options.check:
        given["check"] = "app_requests:check"
    return _trained(name, options, test_tasks=24, eval_tasks=12, **given)


def coding(options: argparse.Namespace, folder: Path) -> Row:
    """Train the built-in coding scenario."""
    return _trained("coding", options, scenario="coding")


def bfcl(options: argparse.Namespace, folder: Path) -> Row:
    """Train on functions of BFCL, and measure on others."""
    scenario = "bfcl?categories=simple_python,multiple"
    return _trained("bfcl", options, scenario=scenario, framework="native")


def _trained(name: str, options: argparse.Namespace, **arguments: Any) -> Row:
    minutes = options.minutes or WISHES[name]
    config = TrainingConfig.create(
        model=options.model,
        output=options.output,
        tracker="none",
        time=60 * minutes,
        **options.settings,
    )
    watched = Watched()
    result = Trainer(config, progress=watched).train(
        yes=True, name=f"real-{name}", **arguments
    )
    return Row(name, result, minutes, watched.curve)


def _print_runs(rows: list[Row]) -> None:
    print("| run | minutes given | right tool | pass^1 | 95 % on validation after |")
    print("|---|---|---|---|---|")
    for row in rows:
        before, after = row.result.baseline, row.result.metrics
        reached = [at for at, value in row.curve[1:] if value >= GOAL]
        when = f"{reached[0]:.1f} min" if reached else "not reached"
        print(
            f"| {row.name} | {row.minutes:g} | {_change(before, after, 'right_tool')} "
            f"| {_change(before, after, 'pass_1')} | {when} |"
        )
    for row in rows:
        result = row.result
        minutes, used = result.wall_seconds / 60, result.cpu_seconds / 60
        print(
            f"\n{row.name}: {result.metrics.tasks} held-out tasks, {result.steps} "
            f"steps, {result.episodes} episodes, {minutes:.1f} min, {used:.1f} "
            f"CPU-min, {result.peak_memory_mb / 1024:.1f} GiB; ended: {result.stopped}."
        )


def _change(before: Metrics, after: Metrics, name: str) -> str:
    """Return a metric before and after, with the latter's interval."""
    first, last = getattr(before, name), getattr(after, name)
    return (
        f"{100 * first.value:.0f} → {100 * last.value:.0f} % "
        f"[{100 * last.low:.0f}, {100 * last.high:.0f}]"
    )


def draw(row: Row, file: Path) -> None:
    """Write a run's curve as a picture: minutes to the right, pass^1 upwards."""
    width, height, left, low = 480, 240, 40, 210
    end = max(1.0, *(at for at, _ in row.curve))
    points = [
        (left + (width - left - 20) * at / end, low - 180 * value)
        for at, value in row.curve
    ]
    marks = [
        f'<text x="{left - 6}" y="{low - 180 * share + 4}" text-anchor="end">'
        f"{100 * share:.0f} %</text>"
        f'<line x1="{left}" x2="{width - 20}" y1="{low - 180 * share}" '
        f'y2="{low - 180 * share}" stroke="#ccc"/>'
        for share in (0, 0.5, GOAL)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#06c"/>' for x, y in points]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11">'
        f'<rect width="{width}" height="{height}" fill="white"/>{"".join(marks)}'
        f'<polyline points="{line}" fill="none" stroke="#06c" stroke-width="2"/>'
        f'{"".join(dots)}<text x="{left}" y="{height - 10}">{row.name}: pass^1 before '
        f"training and on validation tasks, {end:.0f} minutes</text></svg>\n",
        encoding="utf-8",
    )


def speed(options: argparse.Namespace) -> None:
    """Print tokens a second of sampling and of updates, ours and plain ones."""
    cores = str(len(os.sched_getaffinity(0)))
    os.environ.setdefault("OMP_NUM_THREADS", cores)  # of all three alike
    from engine import batch, generate, play, to_groups, train

    from agentgym.engines.local.decoding.threads import in_short_thread
    from agentgym.engines.local.engine import LocalEngine

    config = TrainingConfig.create(
        model=options.model, gpu="none", **{"lora_rank": "16", **options.settings}
    )
    engine = LocalEngine.create(config)
    play(engine.policy, 2, 2)
    played, sampling = _clocked(
        lambda: play(engine.policy, options.episodes, options.episodes)
    )
    tokens = sum(len(result.response_ids) for calls in played for _, result in calls)
    requests = [call[0] for calls in played for call in calls][: options.episodes]
    groups = to_groups(played)
    sequences = batch(engine, groups).sequences
    held = sum(len(sequence.ids) for sequence in sequences)
    _, updating = _clocked(lambda: train(engine, groups))
    engine.close()  # its threads would slow down the others
    dtype = str(engine._loaded.model.dtype).removeprefix("torch.")
    others, cpu, wall = in_short_thread(generate, engine.policy, requests, dtype)
    generating = (wall, cpu)
    _, plain = in_short_thread(lambda: _clocked(_peft_loop(options.model, sequences)))
    print(f"\n`generate` in {dtype}, the loop in float32, as they are usually run")
    print("\n| tokens a second (a CPU-second) | agentgym | plain |\n|---|---|---|")
    for name, ours, theirs in (
        ("sampling, beside `generate`", (tokens, sampling), (others, generating)),
        ("update, beside a loop with peft", (held, updating), (held, plain)),
    ):
        rates = (
            f"{count / wall:,.1f} ({count / cpu:,.1f})"
            for count, (wall, cpu) in (ours, theirs)
        )
        print(f"| {name} | {' | '.join(rates)} |")


def _clocked[T](work: Callable[[], T]) -> tuple[T, tuple[float, float]]:
    """Return what ``work`` returned, and its seconds: of the clock, and of the CPU."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, (time.perf_counter() - wall, time.process_time() - cpu)


def _peft_loop(name: str, sequences: list[Any]) -> Callable[[], None]:
    """Return one pass over sequences, four at a time, as one would write it."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    from agentgym.models.folder import model_source

    base = AutoModelForCausalLM.from_pretrained(model_source(name), dtype=torch.float32)
    settings = LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")
    model: Any = get_peft_model(base, settings)
    optimizer = torch.optim.AdamW(
        [weight for weight in model.parameters() if weight.requires_grad]
    )

    def work() -> None:
        for start in range(0, len(sequences), 4):
            some = sequences[start : start + 4]
            longest = max(len(each.ids) for each in some)
            ids = torch.tensor([s.ids + [0] * (longest - len(s.ids)) for s in some])
            logprobs = torch.log_softmax(model(input_ids=ids).logits.float(), -1)
            loss = torch.zeros(())
            for row, sequence in enumerate(some):
                at = torch.tensor([token.position for token in sequence.trained])
                gain = torch.tensor([token.advantage for token in sequence.trained])
                loss = loss - (logprobs[row, at - 1, ids[row, at]] * gain).sum()
            loss.backward()
        optimizer.step()

    return work


RUNS = {
    "app": app,
    "arithmetic": arithmetic,
    "helper": helper,
    "coding": coding,
    "bfcl": bfcl,
}


def main() -> None:
    """Make the rows that are asked for, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--only", nargs="+", choices=[*RUNS, "speed"])
    parser.add_argument("--minutes", type=float, help="of each run")
    parser.add_argument("--episodes", type=int, default=16, help="of speed")
    parser.add_argument("--checkouts", type=Path, help="folder of cloned apps")
    parser.add_argument("--check", action="store_true", help="score apps by a check")
    parser.add_argument("--output", type=Path, help="folder of runs")
    parser.add_argument("--curves", type=Path, help="folder of pictures")
    parser.add_argument("settings", nargs="*", help="key=value, of the runs")
    options = parser.parse_args()
    options.settings = dict(pair.split("=", 1) for pair in options.settings)
    wanted = options.only or [*RUNS, "speed"]
    folder = Path(tempfile.mkdtemp(prefix="agentgym-real-"))
    options.output = options.output or folder
    load = os.getloadavg()[0]
    print(f"{options.model}; {machine()}; load {load:.1f} before\n", flush=True)
    rows, failed = [], []
    for name in wanted:
        if name in RUNS:
            try:
                rows.append(RUNS[name](options, folder))
            except AgentGymError as error:
                failed.append(f"{name}: {error}")
    if set(wanted) & set(RUNS):
        _print_runs(rows)
    for row in rows:
        if options.curves:
            draw(row, options.curves / f"{row.name}.svg")
    for words in failed:
        print(f"\nNot run: {words}")
    if "speed" in wanted:
        speed(options)


if __name__ == "__main__":
    main()
