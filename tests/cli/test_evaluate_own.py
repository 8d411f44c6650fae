"""``agentgym eval`` of one's own agent, on a model that a server answers for."""

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from agentgym.rollout.trajectory_file import read_jsonl
from tests.cli.conftest import Command
from tests.integrations.langchain.test_configurable import AGENT, tasks_file
from tests.rollout.stub_server import StubServer, completion


async def right(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """Make the call that the user's request needs, then answer."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return web.json_response(completion("Done."))
    branch = str(last["content"]).rstrip("?").partition("in ")[2]
    function = {"name": "loans_of", "arguments": json.dumps({"branch": branch})}
    call = {"id": "c1", "type": "function", "function": function}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    made = completion(message=message, finish_reason="tool_calls")
    return web.json_response(made)


async def wrong(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """Answer at once."""
    return web.json_response(completion("No."))


@pytest.mark.slow  # several evaluations, each with processes of its own
def test_an_agent_of_one_s_own_is_measured_on_any_model(
    tmp_path: Path, agentgym: Command
) -> None:
    path = str(tasks_file(tmp_path))
    own = ["--agent", AGENT, "--configurable", "town=Ulm", "--no-baselines", "--json"]
    with StubServer(right) as good, StubServer(wrong) as bad:
        models = f"{good.endpoint}#good", f"{bad.endpoint}#bad"
        alone = agentgym("eval", path, *own, "--model", models[0])
        assert alone.code == 0, alone.err
        found = json.loads(alone.out)
        assert found["subject"] == f"{AGENT} on {models[0]}"
        assert found["metrics"]["pass_1"]["value"] == 1.0
        two = agentgym("eval", path, *own, "--compare", *reversed(models))
        assert two.code == 0, two.err
        both = json.loads(two.out)
        sides = [both[side]["metrics"]["pass_1"] for side in ("before", "after")]
        assert [side["value"] for side in sides] == [0.0, 1.0]
    assert str(good.bodies[0]["messages"][0]["content"]).endswith("of Ulm.")


@pytest.mark.slow  # each command has processes of its own
def test_agent_and_tasks_mean_the_same_in_every_command(
    tmp_path: Path, agentgym: Command
) -> None:
    path = str(tasks_file(tmp_path))
    own = ["--agent", AGENT, "--configurable", "town=Ulm", "--tasks", path]
    seen = agentgym("inspect", *own, "--json")
    assert seen.code == 0, seen.err
    with StubServer(right) as server:
        model = ["--model", f"{server.endpoint}#m", "--json"]
        measured = agentgym("eval", *own, *model, "--no-baselines", "--count", "2")
        assert json.loads(measured.out)["metrics"]["tasks"] == 2
        rolled = agentgym("rollout", *own, *model, "--save", "out.jsonl")
    assert rolled.code == 0, rolled.err
    found = json.loads(rolled.out)
    assert found["rollouts"] == found["succeeded"] > 2
    assert len(read_jsonl(Path("out.jsonl"))) == found["rollouts"]
