"""Rollouts on real workers with real LangChain agents, some of which misbehave."""

import os
import signal
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from agentgym.core.policy import ChatRequest, ServedPolicy
from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import RolloutStatus, Trajectory
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.errors import RolloutError
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import DATABASE_FILE
from agentgym.scenarios.registry import get_scenario
from tests.rollout.sessions import MISBEHAVING, requests, session, write_down
from tests.rollout.stub_server import StubServer, completion
from tests.variants import first_of

NEWER = ["agent_framework", "openai_agents", "pydantic_ai"]
FRAMEWORKS = [
    *("autogen", "crewai", "langchain", "native"),
    # Each starts workers that import a framework more.
    *(pytest.param(name, marks=pytest.mark.slow) for name in NEWER),
]
NATIVE_AND_OTHERS = first_of(["native", "langchain", "crewai", "autogen", *NEWER], 2)
"""For what is not up to the framework."""
CREWAI_SAYS = "\nCurrent Task: "


def first_step(wanted: list[RolloutRequest]) -> ScriptedPolicy:
    """Return a policy that makes the first call of each task's plan, then answers."""
    plans = {r.task.instruction: r.task.goal["plan"][0] for r in wanted}

    def respond(request: ChatRequest) -> Reply:
        if request.messages[-1]["role"] == "tool":
            return Reply(content="Done.")
        said = request.messages[-1]["content"]
        step = plans[said.removeprefix(CREWAI_SAYS)]
        return Reply(calls=[(step["tool"], step["args"])])

    return ScriptedPolicy(respond)


@pytest.mark.slow
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_rollout_is_run_scored_and_recorded(
    tmp_path: Path, framework: str
) -> None:
    wanted = requests(12)
    with session(tmp_path, first_step(wanted), framework=framework) as opened:
        found = opened.run(wanted, lambda _: None)
        opened.flush()
    assert [t.rollout_id for t in found] == [r.rollout_id for r in wanted]
    for trajectory in found:
        assert trajectory.reward is not None
        assert [s.type for s in trajectory.steps] == [
            "model_call",
            "tool_call",
            "model_call",
        ]
        [call] = trajectory.get_tool_calls()
        assert call.outcome is ToolOutcome.OK
        assert call.result
        assert trajectory.model_calls[0].response_ids
    assert all(t.success for t in found if t.level == 1)
    assert not any(t.success for t in found if t.level == 3)
    with sqlite3.connect(tmp_path / DATABASE_FILE) as database:
        [(ended,)] = database.execute(
            "SELECT count(*) FROM rollouts WHERE state = 'succeeded'"
        )
    assert ended == len(wanted)


@pytest.mark.parametrize("framework", NATIVE_AND_OTHERS)
def test_a_policy_that_never_answers_is_cut_and_scored(
    tmp_path: Path, framework: str
) -> None:
    def respond(request: ChatRequest) -> Reply:
        said = sum(m["role"] == "assistant" for m in request.messages)
        return Reply(calls=[("search_code", {"query": f"x{said}"})])

    always = ScriptedPolicy(respond)
    with session(tmp_path, always, framework=framework) as opened:
        [trajectory] = opened.run(requests(1), lambda _: None)
    assert str(trajectory.reason).startswith("max_turns: no answer within")
    assert trajectory.reward is not None
    assert not trajectory.success
    turns = get_scenario("coding").max_turns
    assert len(trajectory.model_calls) == turns


@pytest.mark.parametrize("framework", NATIVE_AND_OTHERS)
def test_an_agent_that_makes_one_failing_call_again_and_again_is_stuck(
    tmp_path: Path, framework: str
) -> None:
    def respond(request: ChatRequest) -> Reply:
        said = sum(m["role"] == "assistant" for m in request.messages)
        path = "a.py" if said < 2 else "b.py"
        return Reply(calls=[("read_file", {"path": path})])

    with session(tmp_path, ScriptedPolicy(respond), framework=framework) as opened:
        [trajectory] = opened.run(requests(1), lambda _: None)

    assert str(trajectory.reason) == "stuck"
    assert trajectory.reward is not None
    assert not trajectory.success
    paths = [(c.arguments or {})["path"] for c in trajectory.get_tool_calls()]
    assert paths == ["a.py", "a.py", "b.py", "b.py", "b.py"]


def test_contract_2_no_reward_is_invented_for_a_crashed_agent(
    tmp_path: Path, misdeeds: Path
) -> None:
    wanted = requests(6)
    write_down(misdeeds, wanted[2], "raise")
    with session(tmp_path, agent=MISBEHAVING, max_attempts=2) as opened:
        found = opened.run(wanted, lambda _: None)
    dropped = found[2]
    assert dropped.status is RolloutStatus.DROPPED
    assert dropped.reward is None
    assert "the agent is broken" in str(dropped.reason)
    assert dropped.attempt == 1
    assert all(t.reward is not None for t in found if t is not dropped)


def test_contract_2_an_agent_that_ignores_its_model_is_dropped(
    tmp_path: Path, misdeeds: Path
) -> None:
    agent = "tests.rollout.misbehaving:deaf_agent"
    with session(tmp_path, agent=agent, max_attempts=1) as opened:
        [trajectory] = opened.run(requests(1), lambda _: None)
    assert trajectory.reward is None
    assert "without calling the model" in str(trajectory.reason)


@pytest.mark.slow
@pytest.mark.parametrize(
    "misdeed",
    [
        pytest.param("exit", marks=pytest.mark.slow),
        pytest.param("block", marks=pytest.mark.slow),
        "memory",
    ],
)
def test_contract_7_a_bad_episode_ends_alone(
    tmp_path: Path, misdeeds: Path, misdeed: str
) -> None:
    wanted = requests(16)
    write_down(misdeeds, wanted[5], misdeed)
    with session(
        tmp_path, agent=MISBEHAVING, max_attempts=2, rollout_timeout_s=4.0
    ) as opened:
        found = opened.run(wanted, lambda _: None)
    statuses = Counter(t.status is RolloutStatus.DROPPED for t in found)
    assert statuses == {True: 1, False: 15}
    assert found[5].status is RolloutStatus.DROPPED
    assert found[5].reward is None


@pytest.mark.slow
def test_a_killed_worker_costs_only_time(tmp_path: Path) -> None:
    killed: list[int] = []
    with session(tmp_path, framework="native", workers=2) as opened:

        def kill_once(_: Trajectory) -> None:
            if not killed:
                killed.append(opened._pool.pids[0])
                os.kill(killed[0], signal.SIGKILL)

        found = opened.run(requests(64), kill_once)
    assert killed
    assert all(t.reward is not None for t in found)
    assert len({t.rollout_id for t in found}) == 64


def test_requests_that_led_to_no_step_are_counted_with_the_reason(
    tmp_path: Path,
) -> None:
    def respond(request: ChatRequest) -> Reply:
        if request.messages[-1]["role"] == "tool":
            raise RuntimeError("the engine is stuck")
        return Reply(calls=[("list_files", {})])

    with session(
        tmp_path, ScriptedPolicy(respond), framework="native", max_attempts=2
    ) as opened:
        [trajectory] = opened.run(requests(1), lambda _: None)
        opened.flush()
    unused_calls = trajectory.unused_calls["agent"]
    given_up, refused = sorted(unused_calls)
    assert given_up.startswith("attempt given up: crash: ")
    assert refused == "no answer: engine_error"
    with sqlite3.connect(tmp_path / DATABASE_FILE) as database:
        [(asked,)] = database.execute(
            "SELECT count(*) FROM events WHERE event_type = 'model_request'"
        )
    unused = sum(unused_calls.values())
    assert len(trajectory.model_calls) == 1
    assert unused + 1 == asked


@pytest.mark.parametrize("framework", NATIVE_AND_OTHERS)
def test_an_episode_that_outgrows_its_server_is_cut_and_scored(
    tmp_path: Path, framework: str
) -> None:
    function = {"name": "list_files", "arguments": "{}"}
    calls = [{"id": "c1", "type": "function", "function": function}]
    message = {"role": "assistant", "content": None, "tool_calls": calls}

    async def respond(request: web.Request, body: dict[str, Any]) -> web.Response:
        if body["messages"][-1]["role"] == "tool":
            told = "This model's maximum context length is 64 tokens."
            return web.json_response({"message": told}, status=400)
        return web.json_response(completion(message=message))

    with StubServer(respond) as server:
        policy = ServedPolicy("m", [server.endpoint], version=5)
        with session(tmp_path, policy, framework=framework) as opened:
            [trajectory] = opened.run(requests(1), lambda _: None)
    assert trajectory.reason is not None
    assert trajectory.reason.kind == "context_overflow"
    assert trajectory.reward is not None
    [step] = trajectory.model_calls
    assert (step.prompt_ids, step.logprobs) == ([1, 2, 3], [-0.5])
    assert step.model_version == 5
    assert trajectory.unused_calls == {
        "agent": {"no answer: context_length_exceeded": 1}
    }


def test_a_timeout_ends_the_episode_and_is_no_reward(tmp_path: Path) -> None:
    def respond(request: ChatRequest) -> Reply:
        raise RuntimeError("the engine is stuck")

    with session(
        tmp_path, ScriptedPolicy(respond), framework="native", max_attempts=1
    ) as opened:
        [trajectory] = opened.run(requests(1), lambda _: None)
    assert trajectory.status is RolloutStatus.DROPPED
    assert trajectory.reward is None


@pytest.mark.slow
def test_an_agent_that_cannot_be_imported_says_so(tmp_path: Path) -> None:
    with (
        session(tmp_path, agent="no_such_module:make_agent") as opened,
        pytest.raises(RolloutError, match="no_such_module"),
    ):
        opened.run(requests(1), lambda _: None)
