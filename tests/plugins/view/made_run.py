"""A made run: its folder and its store, written as training writes them."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.core.task import Split, Task
from agentgym.core.trajectory import Reason
from agentgym.rollout.store.records import NewEvent, NewRollout, RolloutState
from agentgym.rollout.store.store import Store
from agentgym.scenarios.registry import get_scenario
from agentgym.train.run_folder import RunFolder
from tests.ui import made_up

SYSTEM = "Use the tools."


def tasks(count: int = 4) -> list[Task]:
    """Return test tasks of the coding scenario."""
    return get_scenario("coding").tasks(Split.TEST, 0, count)


def make_run(
    path: Path, *, steps: int = 3, status: str = "done", result: bool = False
) -> RunFolder:
    """Write a run's folder without a store."""
    config = TrainingConfig.create(scenario="coding", name=path.name)
    run = RunFolder(path)
    (path / "checkpoints").mkdir(parents=True)
    run.write_record(status=status, config=config.model_dump(mode="json"))
    for number in range(1, steps + 1):
        run.append_metrics(asdict(made_up.step(number)))
    if result:
        made = made_up.result(path)
        (path / "result.json").write_text(made.model_dump_json())
    return run


def tool_call(
    name: str, arguments: Any, outcome: str = "ok", result: str = "Done."
) -> dict[str, Any]:
    """Return the event of a tool call."""
    return {
        "type": "tool_call",
        "id": f"call-{name}",
        "name": name,
        "arguments": arguments,
        "outcome": outcome,
        "result": result,
    }


def model_call(call: dict[str, Any], agent: str = "agent") -> bytes:
    """Return the recorded model call that asks for a tool call."""
    function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call["id"], "type": "function", "function": function}],
    }
    choice = {
        "message": message,
        "finish_reason": "tool_calls",
        "token_ids": [2538, 2540, 1],
        "logprobs": {"token_logprobs": [-0.1, -0.2, -0.3]},
    }
    data = {
        "model": "nano",
        "model_version": 0,
        "agent": agent,
        "request": {"messages": [{"role": "system", "content": SYSTEM}], "tools": []},
        "response": {"choices": [choice], "prompt_token_ids": [2, 5, 7]},
    }
    return json.dumps(data).encode()


def reward(success: bool, **changes: Any) -> dict[str, Any]:
    """Return the event of a reward."""
    shares = {"right_tool": 1.0, "right_arguments": 1.0 if success else 0.5}
    score = {"value": 1.0 if success else 0.2, "success": success, **shares}
    return {
        "value": score["value"],
        "reason": None if success else {"kind": "goal not reached", "detail": ""},
        "score": {**score, "parts": {"progress": score["value"]}},
        "duration_s": 1.5,
        **changes,
    }


def add_rollout(
    store: Store,
    rollout_id: str,
    task: Task,
    calls: Sequence[dict[str, Any]],
    scored: dict[str, Any] | None,
    *,
    step: int = 0,
    is_train: bool = False,
    agents: Sequence[str] = (),
) -> None:
    """Add an ended rollout; one without a reward is dropped for a timeout."""
    metadata = {
        "scenario": "coding",
        "group": rollout_id.rpartition("-")[0],
        "step": step,
    }
    store.create_rollouts(
        [
            NewRollout(
                input=task.model_dump(mode="json"),
                is_train=is_train,
                metadata=metadata,
                rollout_id=rollout_id,
            )
        ]
    )
    store.claim("worker", 1)
    for number, call in enumerate(calls):
        speaker = agents[number] if agents else "agent"
        store.record_call(rollout_id, "0", model_call(call, speaker))
    events = [NewEvent(event_type="tool_call", data=call) for call in calls]
    if scored is None:
        state, why = RolloutState.FAILED, Reason(kind="timeout")
        store.finish(
            rollout_id, "0", state=state, events=events, reason=why, retry=False
        )
        return
    events.append(NewEvent(event_type="reward", data=scored))
    store.finish(rollout_id, "0", state=RolloutState.SUCCEEDED, events=events)


def fill(store: Store) -> list[Task]:
    """Add a failed, a succeeded and a dropped rollout, and one of a team."""
    made = tasks()
    read = next(task for task in made if len(task.goal["plan"]) == 1)
    plan = read.goal["plan"][0]
    right = tool_call(plan["tool"], plan["args"])
    wrong_args = {**plan["args"], next(iter(plan["args"]), "path"): "elsewhere.py"}
    wrong = tool_call(plan["tool"], wrong_args, "raised", "There is no such file.")
    add_rollout(store, "before_held-out-t0000-00", read, [wrong], reward(False))
    add_rollout(store, "after_held-out-t0000-00", read, [right], reward(True), step=4)
    add_rollout(store, "s00001-t000-00", read, [right], None, step=1, is_train=True)
    broken = tool_call("edit_file", {}, "rule_broken", "Read a.py before you edit it.")
    add_rollout(
        store,
        "s00001-t000-01",
        read,
        [broken, right],
        reward(False, speakers=["planner", "coder"]),
        step=1,
        is_train=True,
        agents=["planner", "coder"],
    )
    return [read]


def fill_team(store: Store) -> None:
    """Add two rollouts of a team: one of two calls, one of three.

    The sampled tokens of its calls are 10, 20 and 30.
    """
    [task, *_] = tasks()
    calls = [tool_call("list_files", {}), tool_call("lint", {}), tool_call("lint", {})]
    for step, who in ((1, ["planner", "coder"]), (2, ["planner", "coder", "coder"])):
        scored = reward(
            step == 2,
            speakers=who,
            response_tokens=[10, 20, 30][: len(who)],
            changed_files={"src/a.py": "print(1)\n", "src/old.py": None},
            end_state={"orders": [["A1", "cancelled"]]},
        )
        name, made = f"s{step:05d}-t000-00", calls[: len(who)]
        add_rollout(
            store, name, task, made, scored, step=step, is_train=True, agents=who
        )
