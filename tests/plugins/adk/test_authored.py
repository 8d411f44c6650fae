"""Rollouts of Google ADK's agents as their authors wrote them."""

import json
import re
from pathlib import Path

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.core.task import Split
from agentgym.core.trajectory import RolloutStatus
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.integrations.registry import is_installed
from agentgym.rollout.absolute_paths import located
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import RolloutSession
from agentgym.scenarios.registry import get_scenario
from tests.integrations.authored_runs import OK, run, told_last
from tests.integrations.test_authored import ELSEWHERE

AUTHORED = "tests.plugins.adk.authored"

pytestmark = [
    pytest.mark.slow,  # each starts workers that import ADK
    pytest.mark.skipif(not is_installed("google.adk"), reason=ELSEWHERE),
]


@pytest.mark.parametrize(
    ("agent", "tool", "live", "result"),
    [
        ("clerk", "shout", (), '{"status": "ok", "said": "HI"}'),
        ("clerk", "shout", ("shout",), '{"status": "ok", "said": "HI"}'),
        ("greeting", "greet", ("greet",), "Hi, you! (1)"),
    ],
)
def test_its_own_tools_run(
    tmp_path: Path, agent: str, tool: str, live: tuple[str, ...], result: str
) -> None:
    call = Reply(calls=[(tool, {"word": "Hi"})])
    settings = {"agent.allow_tools": live} if live else {}
    found = run(tmp_path, "adk", agent, call, OK, **settings)
    assert told_last(found) == result
    assert [(call.name, call.outcome) for call in found.get_tool_calls()] == [
        (tool, "ok")
    ]


def test_callbacks_get_a_recorded_answer_as_the_tool_returns_it(tmp_path: Path) -> None:
    tasks, answer = tmp_path / "tasks.jsonl", {"status": "ok"}
    call = {"tool": "shout", "args": {"word": "Hi"}, "answer": answer}
    lines = [{"instruction": f"{n}: say Hi", "expect": [call]} for n in range(12)]
    tasks.write_text("\n".join(map(json.dumps, lines)))
    named = {"framework": "adk", "agent": f"{AUTHORED}:noting", "scenario": str(tasks)}
    config = located(TrainingConfig.create(**named, max_attempts=1))
    [task] = get_scenario(config.scenario).tasks(Split.TRAIN, 0, 1)
    replies = iter([Reply(calls=[("shout", {"word": "Hi"})])])
    policy = ScriptedPolicy(lambda request: next(replies, OK))
    with RolloutSession(config, policy, tmp_path, 1) as opened:
        request = RolloutRequest("r", task, train=True, group="g", step=1)
        [found] = opened.run([request], lambda _: None)
    assert found.reward is not None, found.reason
    assert told_last(found) == '{"status": "ok"}'


def test_an_answer_in_a_form_is_asked_for(tmp_path: Path) -> None:
    form = Reply(calls=[("answer", {"text": "Two.", "files": 2})])
    found = run(tmp_path, "adk", "typed", form)
    assert found.reward is not None, found.reason
    [call] = found.model_calls
    assert "answer" in {tool["function"]["name"] for tool in call.tools}


@pytest.mark.parametrize("name", ["gone", "list_files"])
def test_a_wrong_call_is_an_error_for_the_model(tmp_path: Path, name: str) -> None:
    found = run(tmp_path, "adk", "clerk", Reply(calls=[(name, "{")]), OK)
    assert found.reward is not None, found.reason
    assert "Error: " in told_last(found)


@pytest.mark.parametrize(
    ("agent", "reason"),
    [("breaking", "the agent is broken"), ("deaf", "ended without calling the model")],
)
def test_what_goes_wrong_drops_the_episode_and_says_why(
    tmp_path: Path, agent: str, reason: str
) -> None:
    found = run(tmp_path, "adk", agent)
    assert found.status is RolloutStatus.DROPPED
    assert re.search(reason, str(found.reason)), found.reason
