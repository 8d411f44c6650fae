"""The example of the coding team: an own role, an own reward, a person on the web."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentgym.evaluate.check import check_scenario
from tests.plugins.team.coding_team import cast
from tests.plugins.team.coding_team.test_graph import ASKED, RIGHT, RISKY, TESTS, good

FOLDER = Path(__file__).parents[2] / "examples" / "coding_team"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(FOLDER)
    yield
    for name in ("own_role", "web"):
        sys.modules.pop(name, None)


def test_every_file_is_in_the_readme() -> None:
    readme = (FOLDER / "README.md").read_text()
    for path in FOLDER.rglob("*.py"):
        assert f"({path.relative_to(FOLDER).as_posix()})" in readme


async def test_an_own_role_comes_after_the_team() -> None:
    from own_role import make_agent  # type: ignore[import-not-found]

    from agentgym.integrations.langchain import LangChainAdapter
    from agentgym.plugins.team.coding_team.environment import TeamEnvironment
    from agentgym.sandbox import Sandbox

    roles = good()

    def play(messages: Any) -> Any:
        system = messages[0].text
        for sign, role in (
            ("You lead", "supervisor"),
            ("You write", "generator"),
            ("You test", "executor"),
        ):
            if system.startswith(sign):
                return roles[role].play(messages)
        return cast.in_turn("It reverses a text.").play(messages)

    sandbox = Sandbox()
    project = TeamEnvironment(TESTS, sandbox)
    try:
        tools = [LangChainAdapter().framework.bound(tool) for tool in project.tools()]
        graph = make_agent(cast.actor(play), tools)
        state = await graph.ainvoke({"messages": [("user", ASKED)]})
    finally:
        sandbox.close()
    assert state["outcome"] == "passed"
    assert state["messages"][-1].text == "It reverses a text."


@pytest.mark.slow
def test_the_roles_are_recorded_by_name_with_the_own_one(tmp_path: Path) -> None:
    """An episode as it is trained, in a process of its own."""
    from agentgym.core.config import TrainingConfig
    from agentgym.core.task import Split
    from agentgym.engines.scripted import Reply, ScriptedPolicy
    from agentgym.rollout.absolute_paths import located
    from agentgym.rollout.runner import RolloutRequest
    from agentgym.scenarios.registry import get_scenario
    from tests.plugins.team.coding_team.test_training import respond
    from tests.rollout.sessions import session

    def play(request: Any) -> Reply:
        offered = {tool["function"]["name"] for tool in request.tools}
        if "list_files" in offered:
            return Reply(content="It adds two numbers.")
        return respond(request)

    config = located(
        TrainingConfig.create(
            scenario="coding_team", framework="langchain", agent="own_role:make_agent"
        )
    )
    tasks = get_scenario("coding_team").tasks(Split.TRAIN, 0, 5)
    [task] = [each for each in tasks if each.family == "reviewed"]
    asked = RolloutRequest("r", task, train=True, group="g", step=1)
    named = {"scenario": config.scenario, "agent": config.agent}
    with session(tmp_path, ScriptedPolicy(play), **named) as opened:
        [rollout] = opened.run([asked], lambda _: None)
    assert rollout.success
    assert {call.agent for call in rollout.model_calls} == {
        *("supervisor", "reviewer", "executor", "documenter")
    }


@pytest.mark.slow
def test_the_own_reward_is_sound() -> None:
    found = check_scenario(str(FOLDER / "strict"), tasks=10)
    assert [each.why for each in found if each.status == "fail"] == []


async def test_a_person_answers_on_the_web() -> None:
    from aiohttp.test_utils import TestClient, TestServer
    from web import make_app  # type: ignore[import-not-found]

    models = good(generator=cast.writes(RISKY, RIGHT))
    async with TestClient(TestServer(make_app(models))) as client:
        given = {"problem": ASKED, "files": TESTS}
        assert (await (await client.post("/problems", json=given)).json()) == {
            "number": 1
        }

        async def shown(key: str) -> Any:
            for _ in range(600):
                body = await (await client.get("/problems/1")).json()
                if body[key]:
                    return body[key]
                await asyncio.sleep(0.05)
            raise AssertionError(body)

        question = await shown("question")
        assert question["kind"] == "risky_edit"
        await client.post("/problems/1/answer", json={"answer": "no"})
        solution = await shown("solution")
        assert solution["outcome"] == "passed"
        assert solution["files"]["solution.py"] == RIGHT["solution.py"]
        late = await client.post("/problems/1/answer", json={"answer": "no"})
        assert late.status == 409
        assert (await client.get("/problems/2")).status == 404
        assert (await client.post("/problems", json={"x": 1})).status == 400
        await client.post("/problems", json={"problem": " "})
        for _ in range(600):
            body = await (await client.get("/problems/2")).json()
            if body["solution"]:
                break
            await asyncio.sleep(0.05)
        assert "The problem is empty" in body["solution"]["error"]
