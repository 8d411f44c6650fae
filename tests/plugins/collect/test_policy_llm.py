"""A policy in this process as the model of rollouts."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from agentgym.core.agent import AgentSpec
from agentgym.core.policy import ChatRequest, Policy
from agentgym.core.trajectory import RolloutStatus
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.errors import ContextLengthError
from agentgym.plugins.collect.batch import RolloutBatch, run_rollouts

pytestmark = pytest.mark.asyncio


class Remembering(ScriptedPolicy):
    closed = False

    def close(self) -> None:
        self.closed = True


class Agent:
    """What a trained agent is to whoever loads it."""

    name = folder = scenario = "none"
    model_path = Path("none")
    roles = ()
    spec = AgentSpec(
        scenario="none",
        framework="native",
        system_prompt="",
        tools=[],
        max_turns=5,
        max_tokens=77,
        temperature=0.25,
    )

    def __init__(self, respond: Callable[[ChatRequest], Reply]) -> None:
        self.requests: list[ChatRequest] = []
        self.policy = Remembering(self.respond)
        self._respond = respond

    def respond(self, request: ChatRequest) -> Reply:
        self.requests.append(request)
        return self._respond(request)

    def verified_model(self) -> Path:
        return self.model_path

    def load_policy(self) -> Policy:
        return self.policy

    def transport(self) -> httpx.AsyncBaseTransport:
        raise AssertionError("rollouts ask the policy itself")


def calculate(request: ChatRequest) -> Reply:
    last = request.messages[-1]
    if last["role"] == "tool":
        return Reply(f"It is {last['content']}.")
    return Reply(calls=[("calculator", {"expression": last["content"]})])


async def run(model: Agent, *tasks: str, **settings: object) -> RolloutBatch:
    return await run_rollouts(tasks, llm=model, **settings)  # type: ignore[arg-type]


async def test_a_trained_agent_answers_as_it_was_evaluated() -> None:
    agent = Agent(calculate)
    batch = await run(agent, "6 * 7", "2 ** 5", tools=["calculator"])
    assert [t.answer for t in batch.trajectories] == ["It is 42.", "It is 32."]
    assert {(r.temperature, r.max_tokens) for r in agent.requests} == {(0.25, 77)}
    assert agent.policy.closed


async def test_every_call_has_a_random_stream_and_a_rollout_one_session() -> None:
    agent = Agent(calculate)
    await run(agent, "1 + 1", "1 + 1", tools=["calculator"])
    assert len({request.seed for request in agent.requests}) == 4
    assert len({request.session for request in agent.requests}) == 2


async def test_answers_end_at_a_stop_sequence() -> None:
    said = "Thought: done\nAction: finish\nObservation: I made this up"
    agent = Agent(lambda _: Reply(said))
    batch = await run(agent, "Go.", agent="react", max_steps=1)
    assert "Observation" not in (batch.trajectories[0].model_calls[0].content or "")


async def test_a_conversation_that_is_too_long_cuts_the_rollout() -> None:
    def overflow(_: ChatRequest) -> Reply:
        raise ContextLengthError("the prompt has 999 tokens")

    batch = await run(Agent(overflow), "Go.")
    [trajectory] = batch.trajectories
    assert trajectory.status is not RolloutStatus.SUCCEEDED
    assert "context" in str(trajectory.reason)


async def test_a_policy_that_fails_drops_the_rollout() -> None:
    def fail(_: ChatRequest) -> Reply:
        raise ValueError("no memory")

    agent = Agent(fail)
    batch = await run(agent, "Go.")
    [drop] = batch.summary.drops
    assert "no memory" in drop.detail
    assert agent.policy.closed
