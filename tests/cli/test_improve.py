"""``agentgym improve`` from the command to its bill."""

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from agentgym.rollout.prompt_overrides import Wording
from tests.cli.conftest import Command
from tests.integrations.langchain.test_configurable import AGENT, tasks_file
from tests.rollout.stub_server import StubServer, completion

RULE = "Always look the loans up."


async def model(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """Make the right call if the tool says so; write better descriptions.

    The system prompt names the member, so that it is another one each time.
    """
    last = body["messages"][-1]
    if body["model"] == "thinker":
        answer = completion(f"```\n{RULE}\n```")
    elif last["role"] == "tool" or RULE not in str(body.get("tools")):
        answer = completion("Done.")
    else:
        branch = str(last["content"]).rstrip("?").partition("in ")[2]
        function = {"name": "loans_of", "arguments": json.dumps({"branch": branch})}
        call = {"id": "c1", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        answer = completion(message=message, finish_reason="tool_calls")
    answer["usage"] = {"prompt_tokens": 100, "completion_tokens": 10}
    return web.json_response(answer)


@pytest.mark.parametrize(
    ("goal", "says"),
    [
        ("pass_9=0.9", "Unknown share 'pass_9'"),
        ("pass_1=0", "is met by any agent"),
        ("0.9", "give a share and its least value"),
    ],
)
def test_a_goal_that_means_nothing_is_one_sentence(
    agentgym: Command, goal: str, says: str
) -> None:
    ended = agentgym("improve", "--agent", AGENT, "--tasks", "t.jsonl", "--goal", goal)
    assert ended.code == 2
    assert says in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.slow  # three sessions, each with processes of its own
@pytest.mark.timeout(600)
def test_better_prompts_meet_the_goal_below_the_cap(
    agentgym: Command, tmp_path: Path
) -> None:
    path = tasks_file(tmp_path)
    with StubServer(model) as server:
        words = ["improve", "--agent", AGENT, "--tasks", str(path), "--json"]
        words += ["--configurable", "town=Ulm", "--goal", "pass_1=0.9"]
        words += ["--model", f"{server.endpoint}#desk", "--set", "eval_samples=1"]
        words += ["--price-in", "1", "--price-out", "2"]
        refused = agentgym(*words)
        assert refused.code == 1
        assert "there are $0.00 left" in json.loads(refused.out)["ended"]
        assert server.bodies == []

        closed = agentgym(*words, "--max-cost", "1", "--yes")
        bill = json.loads(closed.out)
        assert closed.code == 1
        kept = {rung["name"]: rung["words"] for rung in bill["rungs"]}
        assert "no reflection model" in kept["better prompts"]
        assert "needs an open model" in kept["warm start"]
        assert "needs an open model" in kept["training"]

        words += ["--reflection", f"{server.endpoint}#thinker"]
        words += ["--search-rollouts", "40", "--max-cost", "1", "--yes"]
        ended = agentgym(*words)
        assert ended.code == 0, ended.err
        bill = json.loads(ended.out)
        asked = len(server.bodies)
        again = agentgym(*words)
        assert again.code == 0, again.err
        assert len(server.bodies) == asked, "finished rungs are kept"
    first, second = bill["rungs"]
    assert [first["status"], second["status"]] == ["missed", "met"]
    assert second["before"]["pass_1"]["value"] == 0.0
    assert second["after"]["pass_1"]["value"] == 1.0
    assert 0 < first["dollars"] < second["dollars"] < 1
    [folder] = [each.parent for each in (tmp_path / "runs").glob("*/prompts.json")]
    wording = Wording.parse((folder / "prompts.json").read_text())
    assert RULE in str(wording)
