"""How fast `agentgym view` shows runs with many rollouts, and what a watched run pays.

    python benchmarks/viewer.py --rollouts 10000 100000 --rounds 5 --live-seconds 30
    python benchmarks/viewer.py --rollouts --train-rounds 5 --train-episodes 2048

Each store is made: four model calls, three tool calls and a reward a rollout. The first
page is that of a run, with all its files, from the start of the server. A line
writes rollouts as training does, and counts the processor time of a viewer whose page
follows the run. The last table trains in turn without and with an open page of the run
and one of its rollouts, which follow it, on the same machine; and times the record of
how calls were trained, ``credit.jsonl``.
"""

import argparse
import json
import random
import sqlite3
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import psutil
from machine import machine

from agentgym.core.config import TrainingConfig
from agentgym.core.task import Split
from agentgym.rollout.store.store import Store
from agentgym.scenarios.registry import get_scenario
from agentgym.train.run_folder import RunFolder

PER_STEP = 64
CALLS = 3
ASSETS = ("/", "/static/app.js", "/static/style.css", "/static/vendor/preact.mjs")
FILTERS: tuple[dict[str, str], ...] = (
    {},
    {"split": "train"},
    {"phase": "train"},
    {"level": "2"},
    {"roles": "planner"},
    {"reason": "goal not reached"},
    {"text": "nowhere"},
    {"outcome": "failed"},
    {"wrong_argument": "1"},
    {"family": "lint", "outcome": "failed"},
    {"rules": "Error: read … before you edit it."},
    {"text": "read_file utils"},
    {"step": "7", "sort": "-reward"},
)
SERVE = """
import sys
from pathlib import Path
from agentgym.train.run_folder import RunFolder
from agentgym.plugins.view.server import ViewServer
run = RunFolder(Path(sys.argv[1]))
sys.stdin.readline()
with ViewServer(lambda: [run]) as server:
    server.start()
    print(server.base, server.token, flush=True)
    sys.stdin.readline()
"""

TRAIN = """
import json, sys, time
from pathlib import Path
from agentgym import Trainer, TrainingConfig
from agentgym.train import loop
from agentgym.train.run_folder import RunFolder

folder, name, episodes = sys.argv[1:]
seconds, size = [], []
lines_of, append = loop.credit_lines, RunFolder.append_credit

def timed_lines(*given):
    began = time.perf_counter()
    found = list(lines_of(*given))
    seconds.append(time.perf_counter() - began)
    return found

def timed_append(run, lines):
    began = time.perf_counter()
    append(run, lines)
    seconds.append(time.perf_counter() - began)

loop.credit_lines, RunFolder.append_credit = timed_lines, timed_append
config = TrainingConfig.create(
    scenario="coding", framework="native", episodes=int(episodes), name=name,
    output=Path(folder), test_tasks=4, eval_tasks=4, eval_samples=1, eval_every=10**6,
    tracker="none", yes=True,
)
result = Trainer(config, progress=False).train()
steps = RunFolder(Path(folder) / name).metrics()
print(json.dumps({
    "cpu": result.cpu_seconds,
    "wall": result.wall_seconds,
    "steps": sum(s["rollout_seconds"] + s["update_seconds"] for s in steps),
    "count": len(steps),
    "rollouts": result.episodes,
    "credit": sum(seconds) / len(steps),
    "bytes": (Path(folder) / name / "credit.jsonl").stat().st_size,
}))
"""


def make_folder(path: Path, steps: int) -> RunFolder:
    """Write the folder of a run that has done some steps."""
    run = RunFolder(path)
    (path / "checkpoints").mkdir(parents=True)
    config = TrainingConfig.create(scenario="coding", name=path.name)
    run.write_record(status="done", config=config.model_dump(mode="json"))
    names = "reward success_rate right_tool right_arguments tool_reliability entropy kl"
    names += " loss grad_norm clip_fraction logprob_gap trained_tokens skipped_groups"
    names += " groups dropped sampled_tokens tokens_per_second answers_cut"
    lines = [
        {"step": step, "episodes": step * PER_STEP, **dict.fromkeys(names.split(), 0.5)}
        for step in range(1, steps + 1)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (path / "metrics.jsonl").write_text(text)
    return run


def rows(count: int, first: int = 0) -> tuple[list[Any], list[Any]]:
    """Return rows of rollouts and of events, as the store writes them."""
    tasks = get_scenario("coding").tasks(Split.TRAIN, 0, 200)
    draw = random.Random(first)
    rollouts, events = [], []
    for number in range(first, first + count):
        step, index = divmod(number, PER_STEP)
        name = f"s{step + 1:05d}-t{index // 8:03d}-{index % 8:02d}"
        task = tasks[(number // 8) % len(tasks)]
        solved = draw.random() < 0.7
        record = {
            "input": task.model_dump(mode="json"),
            "is_train": True,
            "config": {},
            "metadata": {
                "scenario": "coding",
                "group": name.rpartition("-")[0],
                "step": step + 1,
            },
            "rollout_id": name,
            "status": {
                "state": "succeeded",
                "last_attempt_id": "0",
                "created_at": 1.0,
                "updated_at": 2.0,
                "version": 3,
            },
        }
        rollouts.append((name, number + 1, json.dumps(record)))
        for kind, data in _events(draw, solved):
            events.append((kind, name, "0", 1.0, data))
    return rollouts, events


def _events(draw: random.Random, solved: bool) -> list[tuple[str, Any]]:
    """Return the events of one rollout."""
    found: list[tuple[str, Any]] = []
    noise = " ".join(f"{draw.random():.6f}" for _ in range(300))
    call = {
        "request": {"messages": [{"role": "user", "content": noise}]},
        "response": {"choices": [{"message": {"content": "Done."}}]},
    }
    packed = zlib.compress(json.dumps(call).encode(), 1)
    for number in range(CALLS):
        broken = not solved and number == 0
        said = "Error: read src/a.py before you edit it." if broken else "Done."
        made = {
            "name": draw.choice(["read_file", "edit_file", "lint"]),
            "arguments": {"path": f"src/utils{draw.randrange(99)}.py"},
            "outcome": "rule_broken" if broken else "ok",
            "result": said,
        }
        found += [("model_request", packed), ("tool_call", json.dumps(made))]
    score = {"value": float(solved), "success": solved, "parts": {}}
    score |= {"right_tool": 1.0, "right_arguments": 1.0 if solved else 0.5}
    kind = None if solved else {"kind": "goal not reached", "detail": ""}
    end = {"value": float(solved), "reason": kind, "score": score, "duration_s": 1.0}
    return [*found, ("model_request", packed), ("reward", json.dumps(end))]


def fill(database: Path, count: int, first: int = 0) -> None:
    """Add rollouts to a store, whose tables are the store's own."""
    if not database.exists():
        Store(database).close()
    with sqlite3.connect(database) as file:
        for start in range(first, first + count, 10_000):
            rollouts, events = rows(min(10_000, first + count - start), start)
            file.executemany(
                "INSERT INTO rollouts (rollout_id, terminal_order, rollout)"
                " VALUES (?, ?, ?)",
                rollouts,
            )
            file.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?)", events)
    file.close()


class Viewer:
    """A viewer in a process of its own, which starts when the block begins."""

    def __init__(self, run: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(run)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        time.sleep(4)  # its imports

    def __enter__(self) -> "Viewer":
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.began = time.perf_counter()
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        base, token = self._process.stdout.readline().split()
        headers = {"X-Agentgym-Token": token}
        self.client = httpx.Client(base_url=base, headers=headers, timeout=60)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        self.client.close()

    @property
    def cpu_s(self) -> float:
        """Processor seconds so far."""
        times = psutil.Process(self._process.pid).cpu_times()
        return times.user + times.system

    def get(self, path: str, **query: str) -> Any:
        """Return the JSON of an answer."""
        return self.client.get(f"/api/runs/{path}", params=query).raise_for_status()


def milliseconds(work: Callable[[], Any]) -> float:
    """Return how long ``work`` takes."""
    began = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - began)


def measure(run: Path, rounds: int) -> dict[str, Any]:
    """Return the times of a run's pages, medians over starts; filters over all."""
    first, table, whole = [], [], []
    filters: list[float] = []
    for _ in range(rounds):
        with Viewer(run) as viewer:
            for path in ASSETS:
                viewer.client.get(path)
            viewer.get(run.name)
            first.append(1000 * (time.perf_counter() - viewer.began))
            while not (shown := viewer.get(f"{run.name}/rollouts").json())["rows"]:
                pass
            table.append(1000 * (time.perf_counter() - viewer.began))
            while shown["is_loading"]:
                shown = viewer.get(f"{run.name}/rollouts").json()
            whole.append(1000 * (time.perf_counter() - viewer.began))
            for query in FILTERS:
                path = f"{run.name}/rollouts"
                filters.append(
                    milliseconds(lambda p=path, q=query: viewer.get(p, **q))  # type: ignore[misc]
                )
    return {
        "first page": median(first),
        "first rollouts": median(table),
        "all rollouts": median(whole),
        "filter, median": median(filters),
        "filter, slowest": max(filters),
    }


def watched(folder: Path, seconds: float) -> float:
    """Return the viewer's processor share while a page follows a run that goes on."""
    run = make_folder(folder / "live", 20)
    database = run.path / "rollouts.db"
    fill(database, 20 * PER_STEP)
    writer = sqlite3.connect(database)
    writer.execute("PRAGMA journal_mode=WAL")
    with ThreadPoolExecutor(1) as pool, Viewer(run.path) as viewer:
        viewer.get(f"{run.path.name}/rollouts")
        pool.submit(_follow, viewer, run.path.name)
        time.sleep(1)
        before, began, number = viewer.cpu_s, time.perf_counter(), 20 * PER_STEP
        while time.perf_counter() - began < seconds:
            rollouts, events = rows(16, number)
            with writer:
                writer.executemany(
                    "INSERT INTO rollouts (rollout_id, terminal_order, rollout)"
                    " VALUES (?, ?, ?)",
                    rollouts,
                )
                writer.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?)", events)
            number += 16
            if number % PER_STEP == 0:
                line = run.metrics()[-1]
                run.append_metrics({**line, "step": number // PER_STEP})
            time.sleep(1.5)  # as many rollouts a second as a training has
        share = (viewer.cpu_s - before) / (time.perf_counter() - began)
    writer.close()
    return share


def _follow(viewer: Viewer, name: str) -> None:
    """Ask as an open page of a run does."""
    _on_change(viewer, name, "steps", lambda: viewer.get(name))


def _follow_rollouts(viewer: Viewer, name: str) -> None:
    """Ask as an open table of a run's rollouts does: at most every four seconds."""

    def ask() -> None:
        viewer.get(f"{name}/facets")
        viewer.get(f"{name}/rollouts")
        time.sleep(4)

    _on_change(viewer, name, "rollouts", ask)


def _on_change(viewer: Viewer, name: str, what: str, ask: Callable[[], Any]) -> None:
    """Ask again whenever an event says that something has changed."""
    known = ""
    try:
        with viewer.client.stream("GET", f"/api/runs/{name}/events") as answer:
            for line in answer.iter_lines():
                if not line:
                    continue
                before, known = known, json.loads(line[6:])[what]
                if known != before:
                    with suppress(httpx.HTTPStatusError):  # the run begins just now
                        ask()
    except httpx.HTTPError:  # the viewer has ended
        return


def trained(folder: Path, name: str, episodes: int, *, is_open: bool) -> dict[str, Any]:
    """Train in a process of its own, maybe with open pages; return its figures."""
    command = [sys.executable, "-c", TRAIN, str(folder), name, str(episodes)]
    if not is_open:
        return _figures(command)
    with ThreadPoolExecutor(2) as pool, Viewer(folder / name) as viewer:
        pool.submit(_follow, viewer, name)
        pool.submit(_follow_rollouts, viewer, name)
        before = viewer.cpu_s
        found = _figures(command)
        found["viewer"] = viewer.cpu_s - before
    return found


def _figures(command: list[str]) -> dict[str, Any]:
    said = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, Any] = json.loads(said.stdout.splitlines()[-1])
    return found


def watched_training(folder: Path, rounds: int, episodes: int) -> None:
    """Print what open pages cost a training, and the record of how calls were trained.

    The order of the two changes from round to round, so that neither has the machine
    warm more often.
    """
    found: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    for number in range(rounds):
        for is_open in (False, True) if number % 2 == 0 else (True, False):
            name = f"run-{number}-{is_open}"
            found[is_open].append(trained(folder, name, episodes, is_open=is_open))
    print("\n| training | without | with the pages open | difference |")
    print("|---|---:|---:|---:|")
    for name, label in (("cpu", "CPU s"), ("wall", "wall s"), ("steps", "s in steps")):
        alone, beside = (median(each[name] for each in found[k]) for k in (False, True))
        share = beside / alone - 1
        print(f"| {label} | {alone:.1f} | {beside:.1f} | {share:+.1%} |", flush=True)
    last = found[True][-1]
    print(f"\nThe viewer meanwhile: {last['viewer']:.2f} CPU s")
    step = last["steps"] / last["count"]
    print(
        f"credit.jsonl: {1000 * last['credit']:.1f} ms a step "
        f"({last['credit'] / step:.2%} of {step:.1f} s), "
        f"{last['bytes'] / last['rollouts']:.0f} bytes a rollout"
    )


def asset_bytes() -> int:
    """Return the bytes of the page's files."""
    import agentgym.plugins.view.server as server

    static = Path(server.__file__).parent / "static"
    return sum(path.stat().st_size for path in static.rglob("*.*"))


def main() -> None:
    """Print the tables that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, nargs="*", default=[10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--live-seconds", type=float, default=30.0)
    parser.add_argument("--train-rounds", type=int, default=0)
    parser.add_argument("--train-episodes", type=int, default=1024)
    words = parser.parse_args()
    print(f"{machine()}\n")
    if words.train_rounds:
        with TemporaryDirectory() as scratch:
            watched_training(Path(scratch), words.train_rounds, words.train_episodes)
    if not words.rollouts:
        return
    print("\n| rollouts | measured | ms |\n|---:|---|---:|")
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for count in words.rollouts:
            run = make_folder(folder / f"made-{count}", max(1, count // PER_STEP))
            fill(run.path / "rollouts.db", count)
            for name, value in measure(run.path, words.rounds).items():
                print(f"| {count:,} | {name} | {value:,.0f} |", flush=True)
        print(f"\nThe page's files: {asset_bytes():,} bytes")
        share = watched(folder, words.live_seconds)
        print(f"A page that follows a run: {share:.1%} of one processor")


if __name__ == "__main__":
    main()
