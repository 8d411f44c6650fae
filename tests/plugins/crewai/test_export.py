"""A trained agent given back as CrewAI's: it answers, calls tools and keeps quiet."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from crewai import Agent, Crew
from pydantic import BaseModel

from agentgym.core.policy import ChatRequest
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.integrations.agent_import import load_agent
from agentgym.plugins.crewai import CrewAIAdapter
from tests.integrations.exported import scripted, trained_in
from tests.plugins.crewai.test_authored import delegate_or_note, note_and_answer
from tests.rollout.sessions import requests, session
from tests.rollout.stub_server import LISTED, StubServer, completion

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:crewai")


def list_then_answer(request: ChatRequest) -> Reply:
    if request.messages[-1]["role"] == "tool":
        return Reply("Done.")
    return Reply(calls=[("list_files", {})])


def test_an_agent_calls_the_tools_of_its_scenario_and_prints_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = scripted(monkeypatch, list_then_answer)
    before = dict(os.environ)
    agent = trained_in(tmp_path, "crewai").to_crewai()
    assert isinstance(agent, Agent)
    assert agent.kickoff("List the files.").raw == "Done."
    assert asyncio.run(agent.kickoff_async("List the files.")).raw == "Done."
    assert capfd.readouterr() == ("", "")
    assert os.environ == {"CREWAI_TRACING_ENABLED": "false", **before}
    [told] = [m for m in asked[1].messages if m["role"] == "tool"]
    assert told["content"]
    assert not told["content"].startswith("Error")
    assert [request.seed for request in asked] == [0, 1, 2, 3]
    assert {request.max_tokens for request in asked} == {40}


@pytest.mark.slow
def test_it_is_told_what_it_was_told_in_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings: list[ChatRequest] = []

    def respond(request: ChatRequest) -> Reply:
        trainings.append(request)
        return list_then_answer(request)

    [wanted] = requests(1)
    with session(tmp_path, ScriptedPolicy(respond), framework="crewai") as opened:
        opened.run([wanted], lambda _: None)

    asked = scripted(monkeypatch, list_then_answer)
    agent = trained_in(tmp_path, "crewai").to_crewai()
    assert isinstance(agent, Agent)
    agent.backstory = trainings[0].messages[0]["content"].split(". ", 1)[1]
    agent.backstory = agent.backstory.split("\nYour personal goal is: ")[0]
    agent.kickoff(wanted.task.instruction)
    assert asked[0].messages == trainings[0].messages
    assert asked[0].tools == trainings[0].tools
    assert [m["role"] for m in asked[1].messages] == [
        m["role"] for m in trainings[1].messages
    ]


def test_a_crew_is_given_back_as_a_crew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = scripted(monkeypatch, lambda request: Reply("Done."))
    crew = trained_in(
        tmp_path, "crewai", "tests.plugins.crewai.teams:make_crew"
    ).to_crewai()
    assert isinstance(crew, Crew)
    monkeypatch.setenv("CREWAI_STORAGE_DIR", str(tmp_path))
    assert crew.kickoff({"task": "Note it."}).raw == "Done."
    assert "Note it." in asked[0].messages[-1]["content"]
    assert len(asked) == 2


@pytest.mark.parametrize("name", ["scribe", "make_own", "make_on"])
def test_an_agent_comes_back_as_its_author_wrote_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def note_then_answer(request: ChatRequest) -> Reply:
        if request.messages[-1]["role"] == "tool":
            return Reply("Done.")
        return Reply(calls=[("note", {"text": "this"})])

    asked = scripted(monkeypatch, note_then_answer)
    reference = f"tests.plugins.crewai.authored:{name}"
    found = load_agent(reference)
    llm = getattr(found, "llm", None)
    agent = trained_in(tmp_path, "crewai", reference).to_crewai()
    assert type(agent) is Agent
    assert agent is not found
    assert (agent.role, agent.goal, agent.backstory) == ("Scribe", "Note.", "Slow.")
    assert agent.kickoff("Note this.").raw == "Done."
    assert "the real tool ran" in str(asked[-1].messages[-1]["content"])
    assert getattr(found, "llm", None) is llm


@pytest.mark.parametrize("name", ["led", "headed"])
def test_a_crew_comes_back_with_its_control_flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    asked = scripted(monkeypatch, delegate_or_note)
    crew = load_agent(f"tests.plugins.crewai.authored:{name}")
    before = {key: id(value) for key, value in vars(crew).items()}
    monkeypatch.setenv("CREWAI_STORAGE_DIR", str(tmp_path))
    made = CrewAIAdapter().wrap_agent(trained_in(tmp_path, "crewai"), agent=crew)
    assert type(made) is Crew
    assert made.process is crew.process
    assert made.kickoff({"task": "Note it."}).raw == "Done."
    assert len(asked) == 4
    assert "the real tool ran" in str([request.messages for request in asked])
    assert {key: id(value) for key, value in vars(crew).items()} == before


def test_the_trained_model_is_asked_for_an_answer_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = scripted(monkeypatch, note_and_answer)
    crew = load_agent("tests.plugins.crewai.authored:in_json")
    monkeypatch.setenv("CREWAI_STORAGE_DIR", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "of their authors")  # no provider is asked
    made = CrewAIAdapter().wrap_agent(trained_in(tmp_path, "crewai"), agent=crew)
    assert made.kickoff({"task": "Note it."}).json_dict == {"text": "Noted."}
    assert [request.form for request in asked] == ["", "", "Answer"]


def test_a_model_asked_too_often_gives_its_last_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def respond(request: ChatRequest) -> Reply:
        if not request.tools:
            return Reply("Enough.")
        return Reply(calls=[("search_code", {"query": f"x{len(request.messages)}"})])

    asked = scripted(monkeypatch, respond)
    agent = trained_in(tmp_path, "crewai").to_crewai()
    assert isinstance(agent, Agent)
    assert agent.kickoff("Search.").raw == "Enough."
    assert len(asked) == 5


class Verdict(BaseModel):
    good: bool


def test_a_policy_in_this_process_answers_in_a_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ChatRequest] = []

    def answer(request: ChatRequest) -> Reply:
        asked.append(request)
        return Reply(calls=[("Verdict", {"good": True})])

    scripted(monkeypatch, answer)
    model = CrewAIAdapter().trained_model(trained_in(tmp_path, "crewai"))
    assert model.call("?", response_model=Verdict) == Verdict(good=True)
    assert [(request.form, request.wants_call) for request in asked] == [
        ("Verdict", True)
    ]


def test_a_server_is_asked_by_crewais_own_client(tmp_path: Path) -> None:
    bodies: list[dict[str, Any]] = []

    async def respond(request: Any, body: dict[str, Any]) -> Any:
        from aiohttp import web

        bodies.append({**body, "key": request.headers["Authorization"]})
        message = {"role": "assistant", "content": "Done."}
        return web.json_response(completion(message=message))

    with StubServer(respond, models=LISTED) as server:
        agent = trained_in(tmp_path, "crewai").to_crewai(
            base_url=server.endpoint, api_key="k"
        )
        assert isinstance(agent, Agent)
        assert agent.kickoff("List the files.").raw == "Done."
    [body] = bodies
    assert body["model"] == "/srv/folder"
    assert body["key"] == "Bearer k"
    assert body["temperature"] == 0.0
    assert body["max_completion_tokens"] == 40
    assert "list_files" in json.dumps(body["tools"])


@pytest.mark.slow
def test_shipped_weights_answer(tmp_path: Path) -> None:
    agent = trained_in(tmp_path, "crewai").to_crewai()
    assert isinstance(agent, Agent)
    assert agent.kickoff("Run the tests.").raw
