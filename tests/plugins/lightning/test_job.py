"""One rollout in a process that a controller starts."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.task import Task
from agentgym.core.trajectory import RolloutStatus, Trajectory
from agentgym.plugins.lightning.job import Assignment
from agentgym.plugins.lightning.service import GatewayService
from agentgym.rollout.record import to_trajectory
from agentgym.rollout.store.records import RolloutState, StatusChange
from agentgym.rollout.workers.worker import EXIT_BLOCKED
from tests.rollout.foreign import KEY, queue, service, tasks

NATIVE = {"AGENTGYM_SCENARIO": "coding", "AGENTGYM_FRAMEWORK": "native"}


def variables(served: GatewayService, rollout_id: str) -> dict[str, str]:
    """Return what Agent Lightning's controller sets."""
    where = f"{served.gateway.url}/api/rollouts/{rollout_id}/attempt/0/events"
    address = served.gateway.proxy_url(rollout_id)
    return {"AGL_OPENAI_BASE_URL": address, "AGL_EVENT_URL": where, "AGL_KEY": KEY}


def job(environment: dict[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    """Run ``agentgym job``."""
    return subprocess.run(
        [sys.executable, "-m", "agentgym", "job", *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@contextmanager
def queued(
    folder: Path, chosen: list[Task] | None = None, **fields: Any
) -> Iterator[tuple[GatewayService, str]]:
    """Yield a gateway and one rollout in it, which a controller would start now."""
    with service(folder, workers=0) as (served, api):
        [name] = queue(api, chosen or tasks(1), **fields)
        running = {"status": {"state": "running", "last_attempt_id": "0"}}
        api.patch(f"/api/rollouts/{name}", json=running).raise_for_status()
        yield served, name


def ended(served: GatewayService, name: str, state: RolloutState) -> Trajectory:
    """End a rollout as a controller would; return what was recorded."""
    served.store.patch(name, StatusChange(state=state))
    found = served.store.attempts(name)
    return to_trajectory(
        served.store.get(name), {a: served.store.events(name, a) for a in found}
    )


@pytest.mark.slow
def test_a_job_runs_its_rollout_and_reports_it(tmp_path: Path) -> None:
    with queued(tmp_path) as (served, name):
        done = job(variables(served, name), "coding", "--framework", "native")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"Rollout {name}: reward ")
        assert done.stdout.endswith(", 2 model calls.\n")
        made = ended(served, name, RolloutState.SUCCEEDED)
        assert made.status is not RolloutStatus.DROPPED
        assert made.reward is not None
        assert [call.name for call in made.get_tool_calls()] == ["list_files"]
        assert [call.response_ids for call in made.model_calls] == [[7, 8]] * 2
        rewards = [e for e in served.store.events(name, "0") if "value" in e.data]
        assert [event.data["response_tokens"] for event in rewards] == [[2, 2]]


@pytest.mark.slow
def test_settings_come_from_the_environment_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with queued(tmp_path) as (served, name):
        for variable, value in (variables(served, name) | NATIVE).items():
            monkeypatch.setenv(variable, value)
        done = subprocess.run(  # as Agent Lightning's local controller calls it
            [
                sys.executable,
                "-c",
                "from agentgym.plugins.lightning.job import RolloutJob as J; J().run()",
            ],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert ended(served, name, RolloutState.SUCCEEDED).reward is not None


@pytest.mark.slow
def test_a_rollout_without_a_reward_says_why(tmp_path: Path) -> None:
    agent = "tests.plugins.lightning.test_job:crash"
    with queued(tmp_path) as (served, name):
        words = "coding", "--framework", "langchain", "--agent", agent
        root = str(Path(__file__).parents[3])
        done = job({**variables(served, name), "PYTHONPATH": root}, *words)
        assert done.returncode == 1
        place = re.escape("(plugins/lightning/test_job.py:")
        told = rf"crash: ValueError: it broke {place}\d+\)"
        said = done.stderr.splitlines()[-1]
        assert re.fullmatch(f"Error: Rollout {name} was dropped: {told}", said)
        made = ended(served, name, RolloutState.FAILED)
        assert (made.status, made.reward) == (RolloutStatus.DROPPED, None)
        assert re.fullmatch(told, str(made.reason))


def crash(llm: Any, tools: Any) -> Any:
    """Return a graph that breaks."""
    from langgraph.graph import START, MessagesState, StateGraph

    def fail(state: MessagesState) -> MessagesState:
        raise ValueError("it broke")

    return StateGraph(MessagesState).add_node(fail).add_edge(START, "fail").compile()


@pytest.mark.slow
def test_an_agent_that_blocks_ends_its_process(tmp_path: Path) -> None:
    agent = "tests.plugins.lightning.test_job:block"
    with queued(tmp_path) as (served, name):
        words = "coding", "--framework", "langchain", "--agent", agent, "--timeout", "2"
        root = str(Path(__file__).parents[3])
        done = job({**variables(served, name), "PYTHONPATH": root}, *words)
        assert done.returncode == EXIT_BLOCKED
        assert done.stderr.splitlines()[-1] == "Error: the agent blocked for 2 s."


def block(llm: Any, tools: Any) -> Any:
    """Return a graph that blocks the event loop."""
    from langgraph.graph import START, MessagesState, StateGraph

    async def wait(state: MessagesState) -> MessagesState:
        time.sleep(60)
        return state

    return StateGraph(MessagesState).add_node(wait).add_edge(START, "wait").compile()


@pytest.mark.slow
def test_what_cannot_be_run_is_one_sentence(tmp_path: Path) -> None:
    native = "coding", "--framework", "native"
    with queued(tmp_path) as (served, name):
        right = variables(served, name)
        assert_refused(job({}, *native), "AGL_OPENAI_BASE_URL is not set.", 2)
        wrong = {**right, "AGL_OPENAI_BASE_URL": "http://here/v1"}
        assert_refused(job(wrong, *native), "'http://here/v1' is not a rollout's", 2)
        wrong = {**right, "AGL_KEY": "another"}
        assert_refused(job(wrong, *native), "Invalid or missing API key", 1)
        wrong = variables(served, "nobody")
        assert_refused(job(wrong, *native), "Rollout not found: nobody", 1)
        assert_refused(job(right, "no_such"), "No scenario is named 'no_such'", 2)
    assert_refused(job(right, *native), "cannot be reached: ", 1)


def assert_refused(
    done: "subprocess.CompletedProcess[str]", told: str, code: int
) -> None:
    assert done.returncode == code, done.stderr
    assert told in done.stderr
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize("mode", ["train", "val"])
@pytest.mark.parametrize("end", ["", "/"])
def test_an_assignment_is_read_from_the_address(mode: str, end: str) -> None:
    path = f"/proxy/rollout/r-1/attempt/0/mode/{mode}/openai/v1{end}"
    found = Assignment.read({"AGL_OPENAI_BASE_URL": f"https://g:8{path}"})
    assert found == Assignment("https://g:8", "r-1", "0", "")
