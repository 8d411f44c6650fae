"""A graph's ``config["configurable"]`` has the run's keys and those of each task."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from agentgym.core.agent import AgentSource
from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest
from agentgym.core.task import Split, TaskSource
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.errors import UsageError
from agentgym.integrations.base import Blueprint
from agentgym.integrations.registry import FRAMEWORKS
from agentgym.rollout.absolute_paths import located
from agentgym.rollout.inspection import probed, require_trainable
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import RolloutSession
from agentgym.scenarios.registry import get_scenario
from tests.cli.conftest import Command, agentgym
from tests.integrations.calculator import said

__all__ = ["agentgym"]

AGENT = "tests.integrations.langchain.members:graph"


def tasks_file(folder: Path) -> Path:
    path = folder / "loans.jsonl"
    lines = [
        {
            "instruction": f"What have I borrowed in branch {n}?",
            "expect": [{"tool": "loans_of", "args": {"branch": f"branch {n}"}}],
            "configurable": {"member": f"M{n}"},
        }
        for n in range(14)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.slow
def test_a_run_and_its_tasks_give_a_graph_its_keys(tmp_path: Path) -> None:
    seen: list[str] = []

    def respond(request: ChatRequest) -> Reply:
        seen.append(str(request.messages[0]["content"]))
        call = ("loans_of", '{"branch": "north"}')
        return Reply("Done.") if said(request) else Reply(calls=[call])

    source = TaskSource(
        str(tasks_file(tmp_path)), (f"@{AGENT}",), answers="live", allow=("loans_of",)
    )
    config = located(
        TrainingConfig.create(
            scenario=str(source),
            agent=AGENT,
            **{"agent.configurable": ["town=Ulm", "n=7"]},
        )
    )
    assert config.agent.configurable == {"town": "Ulm", "n": 7}
    require_trainable(config, probed(config))
    [task] = get_scenario(config.scenario).tasks(Split.TEST, 0, 1)
    wanted = [RolloutRequest("r0", task, train=False, group="g", step=0)]
    with RolloutSession(config, ScriptedPolicy(respond), tmp_path, 1) as opened:
        [made] = opened.run(wanted, lambda _: None)
    member = task.configurable["member"]
    assert seen == [f"You serve {member} of Ulm."] * 2
    assert made.get_tool_calls()[0].result == f"loans of {member} in north"


@pytest.mark.parametrize("framework", ["autogen", "crewai"])
def test_keys_that_a_framework_does_not_have_are_refused(framework: str) -> None:
    blueprint = Blueprint("", [], 5, "http://localhost:1", "k", "m", 1)
    wrong = replace(blueprint, agent=AgentSource(configurable={"member": "M1"}))
    with pytest.raises(UsageError, match="--configurable member: .* has no"):
        FRAMEWORKS.get(framework).create_environment(wrong)


@pytest.mark.slow  # commands in processes that import LangChain
def test_keys_are_given_on_the_command_line_and_in_lines(
    tmp_path: Path, agentgym: Command
) -> None:
    path = tasks_file(tmp_path)
    run = ["train", "--agent", AGENT, "--tasks", str(path), "--dry-run"]
    missing = agentgym(*run)
    assert "KeyError: 'town'" in missing.err
    assert "--configurable KEY=VALUE" in missing.err
    given = agentgym(*run, "--configurable", "town=Ulm", "--json")
    assert given.code == 0, given.err
    wrong = agentgym(*run, "--configurable", "town")
    assert "'town' is not of the form key=value" in wrong.err
    path.write_text(path.read_text().replace('{"member": "M3"}', '"M3"'))
    broken = agentgym(*run, "--configurable", "town=Ulm")
    assert "line 4: configurable: Input should be a valid dictionary" in broken.err
