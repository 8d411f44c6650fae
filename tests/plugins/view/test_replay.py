"""The command that a rollout's page gives to let another model attempt its task."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from agentgym.cli.main import main
from agentgym.core.config import TrainingConfig
from agentgym.evaluate.result import Evaluation
from agentgym.plugins.view.opened_run import replay_command
from agentgym.rollout.absolute_paths import located
from agentgym.rollout.trajectory_file import read_jsonl
from agentgym.scenarios.registry import get_scenario
from tests.integrations.langchain.test_configurable import AGENT, tasks_file
from tests.rollout.stub_server import StubServer, completion

TASK = {"id": "t-7", "split": "train", "seed": 3}


def test_an_agent_of_ones_own_is_measured_as_it_was_given() -> None:
    agent = {
        "reference": "command:node agent.js",
        "configurable": {"town": "New Ulm"},
        "own_tools": "stub",
        "allow_tools": ["look"],
    }
    config = {"scenario": "coding", "framework": "native", "agent": agent}
    words = shlex.split(replay_command(config, TASK))
    assert words[:3] == ["agentgym", "eval", "coding"]
    given = dict(zip(words[3::2], words[4::2], strict=False))
    assert given["--agent"] == "command:node agent.js"
    assert given["--configurable"] == "town=New Ulm"
    assert (given["--tools"], given["--allow-tool"]) == ("stub", "look")
    assert (given["--split"], given["--seed"]) == ("train", "3")


def replay(command: str, model: str) -> list[str]:
    """Return the words of a printed command, with the model's name in them."""
    words = shlex.split(command)
    assert words[0] == "agentgym"
    return [model if word == "MODEL" else word for word in words[1:]]


async def right(request: Any, body: dict[str, Any]) -> Any:
    """Make the call that the user's request needs, then answer."""
    from aiohttp import web

    last = body["messages"][-1]
    if last["role"] == "tool":
        return web.json_response(completion("Done."))
    branch = str(last["content"]).rstrip("?").partition("in ")[2]
    function = {"name": "loans_of", "arguments": json.dumps({"branch": branch})}
    asked = {"id": "c1", "type": "function", "function": function}
    message = {"role": "assistant", "content": None, "tool_calls": [asked]}
    made = completion(message=message, finish_reason="tool_calls")
    return web.json_response(made)


@pytest.mark.slow  # commands that start processes
def test_the_printed_commands_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTGYM_HOME", str(tmp_path / "home"))
    with StubServer(right) as server:
        model = f"{server.endpoint}#good"

        own = TrainingConfig.create(
            scenario=str(tasks_file(tmp_path)),
            agent=AGENT,
            **{"agent.configurable": ["town=Ulm"]},
        )
        config = located(own)
        task = get_scenario(config.scenario).tasks("test", 0, 14)[0]
        asked = task.model_dump(mode="json")
        command = replay_command(config.model_dump(mode="json"), asked)
        saved = tmp_path / "evaluation.json"
        assert main([*replay(command, model), "--save", str(saved)]) == 0
        found = Evaluation.load(saved)
        assert found.metrics.pass_1.value == 1.0
        assert [each.task_id for each in found.attempts] == [task.id]
        first = str(server.bodies[0]["messages"][-1]["content"])
        assert first.endswith(task.instruction)

        plain = config.replaced(agent={"reference": None})
        command = replay_command(plain.model_dump(mode="json"), asked)
        saved = tmp_path / "out.jsonl"
        assert main([*replay(command, model), "--save", str(saved)]) == 0
        [rollout] = read_jsonl(saved)
        assert (rollout.task_id, rollout.success) == (task.id, True)

        coding = TrainingConfig.create(scenario="coding")
        [task] = get_scenario("coding").tasks("train", 5, 1)
        asked = task.model_dump(mode="json")
        command = replay_command(coding.model_dump(mode="json"), asked)
        saved = tmp_path / "coding.jsonl"
        main([*replay(command, model), "--save", str(saved)])
        assert [each.task_id for each in read_jsonl(saved)] == [task.id]
