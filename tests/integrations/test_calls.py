"""The same mistakes are counted alike, whichever framework the agent is of."""

from pathlib import Path

import pytest

from agentgym.core.policy import ChatRequest
from agentgym.core.task import Split
from agentgym.core.trajectory import Trajectory
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.rollout.runner import RolloutRequest
from agentgym.scenarios.registry import get_scenario
from tests.integrations.calculator import said
from tests.rollout.sessions import session

NEWER = ["agent_framework", "openai_agents", "pydantic_ai"]
SCENARIO = str(Path(__file__).parent / "calculator.py")
FRAMEWORKS = [
    *("autogen", "crewai", "langchain", "native"),
    # Each starts workers that import a framework more.
    *(pytest.param(name, marks=pytest.mark.slow) for name in NEWER),
]
MISTAKES: list[tuple[str, str, str]] = [
    ("subtract", "{}", "unknown_tool"),
    ("peek", "{}", "unknown_tool"),  # a method of the environment, but no tool here
    ("add", '{"a": "many", "b": 1}', "invalid_arguments"),
    ("add", '{"a": 1}', "invalid_arguments"),
    ("add", '{"a": 1, "b": 2, "c": 3}', "invalid_arguments"),
    ("divide", '{"a": 1, "b": 0}', "raised"),
    ("clear", "{}", "rule_broken"),
    ("add", '{"a": "1", "b": 2}', "ok"),
    ("add", '{"a": 1', "malformed"),  # the last: LangChain's agent ends there
]


def rollout(folder: Path, framework: str) -> Trajectory:
    def respond(request: ChatRequest) -> Reply:
        place = said(request)
        if place >= len(MISTAKES):
            return Reply("Done.")
        name, arguments, _ = MISTAKES[place]
        return Reply(calls=[(name, arguments)])

    [task] = get_scenario(SCENARIO).tasks(Split.TRAIN, 0, 1)
    wanted = [RolloutRequest("r0", task, train=True, group="g", step=1)]
    given = {"scenario": SCENARIO, "framework": framework, "max_attempts": 1}
    with session(folder, ScriptedPolicy(respond), **given) as opened:
        [trajectory] = opened.run(wanted, lambda _: None)
    return trajectory


@pytest.mark.slow
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_same_mistakes_are_judged_alike_through_every_framework(
    tmp_path: Path, framework: str
) -> None:
    found = rollout(tmp_path, framework)
    assert found.reward is not None, found.reason
    calls = [(call.name, call.outcome.value) for call in found.get_tool_calls()]
    assert calls == [(name, outcome) for name, _, outcome in MISTAKES]
