"""Tripwires (tests) that make tasks and episodes twice and require equal results."""

import hashlib
import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from functools import partial
from typing import Any

from agentgym.core.task import Task
from agentgym.core.tools import ToolSpec
from agentgym.evaluate.baselines import CallEverything, DoNothing
from agentgym.evaluate.check.examination import Examination
from agentgym.rollout.workers.forks import fork_server
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import make_tasks

_TIMEOUT_S = 300.0
_REPLAYED = 12
_FLOOD = CallEverything(seed=1, from_instruction=True)


def determinism(examined: Examination) -> Iterator[str]:
    """Check that a seed gives the same tasks and episodes in every process."""
    for split in examined.scenario.splits:
        make = partial(
            make_tasks, examined.scenario, split, examined.seed, examined.count
        )
        if make() != make():
            yield f"tasks({split.value}) differs when called twice"
            return
    for task in examined.to_play:
        if Task.model_validate_json(task.model_dump_json()) != task:
            yield f"task {task.id} changes on its way to a worker: use JSON values"
            return
    digests = [json.loads(text) for text in _digests_of_others(examined)]
    if failed := [found["error"] for found in digests if "error" in found]:
        yield f"another process could not play it: {failed[0]}"
        return
    one, other = digests
    for kind in ("tasks", "rollouts"):
        changed = [key for key in one[kind] if one[kind][key] != other[kind].get(key)]
        if changed:
            yield (
                f"{len(changed)} of {len(one[kind])} {kind} differ between processes "
                f"(hash order, time or an unseeded random?), e.g. {changed[0]}"
            )
            return


def _digests_of_others(examined: Examination) -> list[str]:
    """Run :func:`report` in two new processes with different hash seeds."""
    asked = json.dumps([examined.reference, examined.seed, examined.count])
    with open(os.devnull, "wb") as nowhere:
        children = [
            fork_server((__name__,), hash_seed).fork(
                f"{__name__}:report", asked, errors=nowhere.fileno()
            )
            for hash_seed in ("1", "2")
        ]
    try:
        return [child.read(_TIMEOUT_S).decode() for child in children]
    except TimeoutError:
        late = f"it took longer than {_TIMEOUT_S:.0f} s"
        return [json.dumps({"error": late})]
    finally:
        for child in children:  # a hanging one, or one not needed any more
            child.signal(signal.SIGKILL)
            child.close()


def report(asked: str) -> None:
    """Write hashes of tasks and episodes, or an error, as JSON to standard output."""
    reference, seed, count = json.loads(asked)
    stdout = os.dup(1)
    os.dup2(2, 1)
    with redirect_stdout(sys.stderr), os.fdopen(stdout, "w") as file:
        try:
            scenario = get_scenario(reference).rehearsal()
            try:
                found = _digests(Examination(reference, scenario, count, seed))
            finally:
                scenario.close()
            json.dump(found, file)
        except Exception as error:  # noqa: BLE001 - the scenario's own code
            json.dump({"error": f"{type(error).__name__}: {error}"}, file)


def _digests(examined: Examination) -> dict[str, dict[str, str]]:
    """Return hashes of ``tasks`` and ``episodes`` by name, to compare processes."""
    scenario = examined.scenario
    tasks = {
        f"task {number} of {split.value} ({task.id})": _digest(
            task.model_dump(mode="json")
        )
        for split, tasks in examined.tasks.items()
        for number, task in enumerate(tasks)
    }
    played = {}
    for task in examined.to_play[:_REPLAYED]:
        calls = examined.solution(task) or _FLOOD.calls(task, examined.tools[task.id])
        episode = examined.play(task, "", calls)
        played[f"the rollout of task {task.id}"] = _digest(episode.traces())
    prompt = [scenario.system_prompt(), _schemas(scenario.tools())]
    tools = {
        f"the tools of task {task.id}": _digest(_schemas(examined.tools[task.id]))
        for task in examined.to_play[:_REPLAYED]
    }
    texts = {**tasks, **tools, "the prompt": _digest(prompt)}
    return {"tasks": texts, "rollouts": played}


def _schemas(specs: Iterable[ToolSpec]) -> list[dict[str, Any]]:
    return [spec.to_openai() for spec in specs]


def isolation(examined: Examination) -> Iterator[str]:
    """Check that episodes of a task change neither the task nor each other."""
    for task in examined.to_play[:_REPLAYED]:
        before = task.model_dump(mode="json")
        specs = examined.tools[task.id]
        calls = (examined.solution(task) or []) + _FLOOD.calls(task, specs)
        create = examined.scenario.create_environment
        open_ones = [create(task) for _ in range(4)]
        first_idle, first, second, last_idle = [
            examined.play(task, "", made, environment)
            for made, environment in zip(([], calls, calls, []), open_ones, strict=True)
        ]
        if task.model_dump(mode="json") != before:
            yield f"a rollout changes its task {task.id}; copy the initial state"
            return
        for name, one, other in (
            ("the same calls", first, second),
            (f"a {DoNothing().name} agent", first_idle, last_idle),
        ):
            if one.traces() != other.traces():
                yield (
                    f"task {task.id}: a rollout sees the changes of another one; "
                    f"{name} in two environments came to different results"
                )
                return


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
