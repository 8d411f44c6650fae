"""A trained agent given back as CrewAI's: it answers, calls tools and keeps quiet."""

import asyncio
import os
from pathlib import Path

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
