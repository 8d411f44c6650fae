"""Batches of rollouts: each ends in one place, with its reason, and is saved."""

import asyncio
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.task import Task
from agentgym.core.trajectory import Reward, RolloutStatus, Trajectory
from agentgym.errors import (
    UsageError,
)
from agentgym.plugins.collect.batch import read_tasks
from agentgym.rollout import (
    Episode,
    RolloutBatch,
    RolloutConfig,
    read_jsonl,
    run_rollouts,
    run_rollouts_sync,
)
from tests.rollout.scripted_llm import Unreliable, calling, echo, saying


async def run(*instructions: str, **options: Any) -> RolloutBatch:
    """Run the unreliable agent on what it is to do."""
    options = {"llm": echo, "agent": Unreliable, "timeout_s": 0.2, **options}
    return await run_rollouts(list(instructions), **options)


async def test_rollouts_come_back_in_order_of_the_tasks() -> None:
    batch = await run_rollouts([f"Say {i}" for i in range(50)], llm=echo, concurrency=7)
    assert [t.answer for t in batch.trajectories] == [
        f"You said: Say {i}" for i in range(50)
    ]
    assert batch.summary.succeeded == 50
    assert len({t.rollout_id for t in batch.trajectories}) == 50


@pytest.mark.parametrize(
    ("what", "status", "reason"),
    [
        ("crash", RolloutStatus.DROPPED, "crash: ValueError: it broke"),
        ("hang", RolloutStatus.DROPPED, "timeout: nothing moved for 0.2 s"),
        ("cancel", RolloutStatus.DROPPED, "cancelled: the agent"),
        ("garbage", RolloutStatus.DROPPED, "garbage reply: the agent returned int"),
        ("nothing", RolloutStatus.FAILED, "empty answer"),
    ],
)
async def test_what_an_agent_does_ends_its_own_rollout_alone(
    what: str, status: RolloutStatus, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentgym.integrations.run._GRACE_S", 0.1)
    batch = await run("fine", what, "fine too")
    first, second, third = batch.trajectories
    assert (first.status, third.status) == (RolloutStatus.SUCCEEDED,) * 2
    assert second.status is status
    assert str(second.reason).startswith(reason)
    assert len(second.model_calls) == 1  # what happened until then is kept


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (None, "garbage reply: the model returned None"),
        ({"content": 3}, "garbage reply: the model's message is malformed at content"),
        ({"choices": []}, "garbage reply: the completion has no message"),
        (ConnectionError("down"), "model: ConnectionError: down"),
        (asyncio.CancelledError(), "cancelled: "),
    ],
    ids=repr,
)
async def test_what_a_model_answers_ends_its_own_rollout_alone(
    reply: Any, reason: str
) -> None:
    (found,) = (await run_rollouts(["x"], llm=saying(reply))).trajectories
    assert found.status is RolloutStatus.DROPPED
    assert str(found.reason).startswith(reason)
    assert found.reward is None


@pytest.mark.slow
async def test_waiting_for_a_busy_model_is_not_hanging() -> None:
    async def busy(messages: list[dict[str, Any]], **_: Any) -> str:
        await asyncio.sleep(0.5)
        return "Done."

    (found,) = (await run("wait", llm=busy)).trajectories  # with 0.2 s
    assert found.status is RolloutStatus.SUCCEEDED, found.reason


@pytest.mark.slow
async def test_agent_that_blocks_the_event_loop_is_named_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    batch = await run("fine", "block", "fine too")
    assert batch.summary.rollouts == 3
    [told] = [r.getMessage() for r in caplog.records if "stood still" in r.getMessage()]
    assert "asyncio.to_thread" in told
    assert "time.sleep(0.8)" in told


async def test_no_more_than_concurrency_run_at_a_time() -> None:
    now, most = 0, 0

    async def llm(messages: list[dict[str, Any]], **_: Any) -> str:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1
        return "x"

    await run_rollouts(["x"] * 40, llm=llm, concurrency=5)
    assert most == 5


async def test_each_rollout_is_saved_before_the_next_is_heard_of(
    tmp_path: Path,
) -> None:
    path = tmp_path / "out.jsonl"
    counts: list[int] = []

    def look(_: Trajectory) -> None:
        counts.append(len(read_jsonl(path)))

    await run_rollouts(["x"] * 5, llm=echo, save=path, on_done=look)
    assert counts == [1, 2, 3, 4, 5]


async def test_batch_that_is_cancelled_accounts_for_every_rollout_that_began(
    tmp_path: Path,
) -> None:
    path = tmp_path / "out.jsonl"
    options: dict[str, Any] = {"concurrency": 2, "timeout_s": 60, "save": path}
    work = asyncio.create_task(run("fine", "hang", "hang", *["fine"] * 3000, **options))
    while not path.exists() or not path.read_text():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    saved = {t.task_id: t for t in read_jsonl(path)}
    assert list(saved) == ["task-00000", "task-00001", "task-00002"]
    assert saved["task-00000"].status is RolloutStatus.SUCCEEDED
    assert str(saved["task-00001"].reason) == "cancelled: the batch was ended"


async def test_steps_and_sampling_are_limited_as_configured() -> None:
    options: list[dict[str, Any]] = []

    async def llm(messages: list[dict[str, Any]], **given: Any) -> Any:
        options.append(given)
        return calling("calculator", expression="1+1")

    config = RolloutConfig(max_steps=3, max_tokens_per_step=50, temperature=0.5)
    batch = await run_rollouts(["x"], llm=llm, tools=["calculator"], config=config)
    (found,) = batch.trajectories
    assert found.status is RolloutStatus.FAILED
    assert str(found.reason) == "max_turns: no answer within 3 calls"
    assert [(o["max_tokens"], o["temperature"]) for o in options] == [(50, 0.5)] * 3
    assert [tool.result for tool in found.get_tool_calls()] == ["2"] * 3


class Unsaveable(Unreliable):
    """Puts into its messages what no file can hold."""

    async def run(self, episode: Episode) -> str | None:
        content: Any = object() if episode.task.instruction == "object" else "\ud83d"
        reply = await episode.ask([{"role": "user", "content": content}])
        return reply.content


async def test_what_cannot_be_saved_ends_its_own_rollout_alone(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    batch = await run("object", "half a letter", agent=Unsaveable, save=path)
    bad, good = batch.trajectories
    assert str(bad.reason).startswith("crash: TypeError: Object of type object is not")
    assert good.answer == "You said: \ud83d"
    assert read_jsonl(path) == [bad, good]


async def test_reward_may_be_async_and_say_more() -> None:
    async def judged(task: Task, trajectory: Trajectory) -> Reward:
        return Reward(0.25, success=False, parts={"style": 0.25})

    (found,) = (await run_rollouts(["x"], llm=echo, reward=judged)).trajectories
    assert (found.reward, found.success) == (0.25, False)
    assert (found.status, str(found.reason)) == (
        RolloutStatus.FAILED,
        "goal not reached",
    )


@pytest.mark.parametrize(
    "value",
    [
        "high",
        float("nan"),
        ValueError("no"),
        Reward(float("inf"), success=True),
    ],
)
async def test_reward_that_is_no_number_is_not_invented(value: Any) -> None:
    def bad(task: Task, trajectory: Trajectory) -> Any:
        if isinstance(value, Exception):
            raise value
        return value

    (found,) = (await run_rollouts(["x"], llm=echo, reward=bad)).trajectories
    assert (found.status, found.reward) == (RolloutStatus.DROPPED, None)
    assert str(found.reason).startswith("reward: ")


async def test_slow_sync_reward_and_tool_do_not_block_the_others() -> None:
    def slow(task: Task, trajectory: Trajectory) -> float:
        time.sleep(30)
        return 1.0

    batch = await run_rollouts(["x"] * 20, llm=echo, reward=slow, timeout_s=0.3)
    assert batch.summary.reasons == {"timeout": 20}


async def test_scenario_brings_tools_prompt_and_reward() -> None:
    from agentgym.core.task import Split
    from agentgym.scenarios.registry import get_scenario

    with closing(get_scenario("coding")) as scenario:
        tasks = scenario.tasks(Split.TEST, 0, 3)
        batch = await run_rollouts(tasks, llm=saying("Done."), reward=scenario)
    assert all(t.reward is not None for t in batch.trajectories)
    assert batch.summary.reasons == {"goal not reached": 3}
    call = batch.trajectories[0].model_calls[0]
    assert call.messages[0]["content"] == scenario.system_prompt()
    assert "read_file" in [tool["function"]["name"] for tool in call.tools]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"agent": "tol"}, "No agent for rollouts is named 'tol'. Did you mean 'tool'"),
        ({"agent": "json:JSONDecoder"}, "is a type, not a RolloutAgent"),
        ({"tools": ["calc"]}, "No tool is named 'calc'. Did you mean 'calculator'"),
        ({"tools": "bash"}, "give a list"),
        ({"tools": {"bash": {"time": 3}}}, "Tool 'bash': unknown setting 'time'"),
        ({"llm": 3}, "llm is 3"),
        ({"reward": 3}, "reward is 3"),
        ({"reward": "coding", "tools": ["bash"]}, "brings its own tools"),
        ({"concurency": 3}, "unknown setting 'concurency', did you mean 'concurrency'"),
    ],
    ids=str,
)
async def test_what_cannot_be_meant_is_refused_before_anything_runs(
    options: dict[str, Any], error: str
) -> None:
    from agentgym.errors import AgentGymError

    with pytest.raises(AgentGymError, match=error):
        await run_rollouts(["x"], **{"llm": echo, **options})


@pytest.mark.parametrize("tasks", ["just text", [3], [{"id": "x"}]])
async def test_tasks_that_are_none_are_refused(tasks: Any) -> None:
    with pytest.raises(UsageError):
        await run_rollouts(tasks, llm=echo)


async def test_files_of_a_task_must_stay_inside() -> None:
    from agentgym.errors import SandboxError

    task = {"instruction": "x", "initial_state": {"files": {"../x": ""}}}
    with pytest.raises(SandboxError, match="'../x'"):
        await run_rollouts([task], llm=echo)


def test_tasks_are_read_from_json_lines_and_the_wrong_line_is_named(
    tmp_path: Path,
) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('"One"\n\n{"instruction": "Two", "id": "b"}\n')
    assert [(t.id, t.instruction) for t in read_tasks(path)] == [
        ("task-00000", "One"),
        ("b", "Two"),
    ]
    path.write_text('"One"\n{"instruction": 3}\n')
    with pytest.raises(UsageError, match="line 2: Task 1: instruction"):
        read_tasks(path)
    path.write_text("One\n")
    with pytest.raises(UsageError, match="line 1, is not JSON"):
        read_tasks(path)


async def test_a_sync_call_works_inside_a_loop() -> None:
    assert len(run_rollouts_sync(["x"], llm=echo).trajectories) == 1


def test_settings_come_from_yaml_too(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("agent: react\ntools:\n  bash: {timeout_s: 2}\n  calculator:\n")
    config = RolloutConfig.from_yaml(path, max_steps=4)
    assert (config.agent, config.max_steps) == ("react", 4)
    assert config.tools == {"bash": {"timeout_s": 2}, "calculator": {}}
