"""The team in training: who called, what came of it, and who is trained."""

from typing import Any

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest
from agentgym.core.task import Split
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.plugins.team.coding_team.scenario import FAMILIES
from agentgym.rollout.absolute_paths import located
from agentgym.rollout.runner import RolloutRequest
from agentgym.scenarios.registry import get_scenario
from tests.rollout.sessions import session

pytestmark = pytest.mark.slow

TRAINED = ("supervisor", "executor")


def respond(request: ChatRequest) -> Reply:
    """Play each role rightly, by the tools that it is offered."""
    offered = {tool["function"]["name"] for tool in request.tools}
    last = request.messages[-1]
    text = str(last["content"])
    if "hand_over" in offered:
        facts = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
        to = "finish"
        is_bad = "failed" in facts["Tests"] or "serious" in facts["Review"]
        if facts["Code"] == "none." or is_bad:
            to = "generator"
        elif "long" in facts["Code"] and facts["Review"] == "none.":
            to = "reviewer"
        elif facts["Tests"] == "not run.":
            to = "executor"
        return Reply(calls=[("hand_over", {"to": to})])
    said = sum(message["role"] == "assistant" for message in request.messages)
    first = next(str(m["content"]) for m in request.messages if m["role"] == "user")
    path = first.splitlines()[-1].partition(": ")[2]
    tools = ["run_tests"] if "run_tests" in offered else ["lint", "check_security"]
    if said < len(tools):
        return Reply(calls=[(tools[said], {"path": path})])
    return Reply(content="Done.")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a trajectory of each family."""
    config = located(TrainingConfig.create(scenario="coding_team"))
    tasks = get_scenario("coding_team").tasks(Split.TRAIN, 0, 5)
    requests = [
        RolloutRequest(f"r{number}", task, train=True, group=f"g{number}", step=1)
        for number, task in enumerate(tasks)
    ]
    folder = tmp_path_factory.mktemp("team")
    named = {"scenario": config.scenario, "agent": config.agent}
    with session(folder, ScriptedPolicy(respond), **named) as opened:
        return opened.run(requests, lambda _: None)


def test_every_family_is_solved_by_the_graph(made: Any) -> None:
    assert {rollout.family for rollout in made} == {f.name for f in FAMILIES}
    assert [rollout.reason for rollout in made] == [None] * len(FAMILIES)
    assert all(rollout.success for rollout in made)
    assert [round(rollout.reward, 3) for rollout in made] == [1.0] * len(FAMILIES)


def test_calls_are_attributed_by_role(made: Any) -> None:
    by_family = {rollout.family: rollout for rollout in made}
    roles = [call.agent for call in by_family["reviewed"].model_calls]
    assert roles == [
        *("supervisor", "supervisor"),
        *("reviewer", "reviewer", "reviewer"),
        *("supervisor", "executor", "executor", "supervisor"),
    ]


def test_calls_of_other_roles_are_masked(made: Any) -> None:
    from agentgym.core.ledger import ROLE_NOT_TRAINED
    from agentgym.train.batch import BatchBuilder

    config = TrainingConfig.create(scenario="coding_team", train_roles=TRAINED)
    scenario = get_scenario("coding_team")
    builder = BatchBuilder.of(config, scenario, lambda call: None)
    rollout = next(r for r in made if r.family == "reviewed")
    other = rollout.model_copy(update={"rollout_id": "other", "reward": -0.5})
    built = builder.build([[rollout, other]], scenario.broadcast_rewards)
    buckets = zip(rollout.model_calls, built.ledger["other"], strict=True)
    left_out = [c.agent for c, bucket in buckets if bucket.reason == ROLE_NOT_TRAINED]
    assert left_out == ["reviewer"] * 3
