"""Agents of one framework that run in a node or a tool of another framework's."""

from pathlib import Path
from typing import Any

import pytest

from agentgym.core.policy import ChatRequest
from agentgym.engines.scripted import Reply, ScriptedPolicy
from tests.integrations.inside import FRAMEWORKS
from tests.rollout.sessions import requests, session

INSIDE = "tests.integrations.inside"
WANTED = {"path": "README.md"}


def respond(request: ChatRequest) -> Reply:
    """Let the outer agent ask the one that it is told, and that one read a file."""
    said = request.messages[-1]
    tools = {tool["function"]["name"] for tool in request.tools}
    if "final_answer" in tools and "Observation:" in str(
        said["content"]
    ):  # smolagents'
        return Reply(calls=[("final_answer", {"answer": "Done."})])
    if said["role"] == "tool":
        return Reply("Done.")
    if "ask" in tools:
        which = str(said["content"]).split()[-1]
        return Reply(calls=[("ask", {"which": which})])
    return Reply(calls=[("read_file", WANTED)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ("node", ("pydantic_ai",)),
        pytest.param("graph", FRAMEWORKS, marks=pytest.mark.slow),
        *(pytest.param(x, FRAMEWORKS, marks=pytest.mark.slow) for x in FRAMEWORKS),
    ],
)
def test_an_agent_inside_of_another_is_trained_too(
    tmp_path: Path, outer: str, inner: tuple[str, ...]
) -> None:
    is_node = outer in ("node", "graph")
    is_graph = is_node or outer == "langchain"
    settings: dict[str, Any] = {
        "framework": "langchain" if is_node else outer,
        "agent": f"{INSIDE}:outer_{outer}",
        "agent.inputs": f"{INSIDE}:{'messages' if is_graph else 'first'}",
        "max_attempts": 1,
    }
    wanted = [
        request
        for name, request in zip(FRAMEWORKS, requests(len(FRAMEWORKS)), strict=True)
        if name in inner
    ]
    with session(tmp_path, ScriptedPolicy(respond), **settings) as opened:
        done = opened.run(wanted, lambda _: None)
    seen = {
        name: (
            [
                (each.name, each.arguments)
                for each in found.get_tool_calls()
                if each.name not in ("ask", "final_answer")
            ],
            len(found.model_calls),
            str(found.reason),
        )
        for name, found in zip(inner, done, strict=True)
    }
    calls, count = [("read_file", WANTED)], 2 if is_node else 4
    assert seen == dict.fromkeys(inner, (calls, count, "goal not reached"))
