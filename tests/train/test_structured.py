"""Agents whose models answer in a form: inspected, trained, and given back."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from agentgym import Trainer
from agentgym.core.config import TrainingConfig
from agentgym.rollout.located import located
from agentgym.rollout.probe import probed
from agentgym.rollout.store.store import Store

MODULES = {"crew": "structured_crew"}
ROOMS = ("blue", "green", "red", "amber", "white", "grey")


def book(room: str) -> dict[str, Any]:
    expect = [{"tool": "book_room", "args": {"room": room}}]
    return {"instruction": f"Please book the room {room}.", "expect": expect}


def look_up(topic: str) -> dict[str, Any]:
    expect = [{"tool": "retrieve_posts", "args": {"topic": topic}}]
    return {"instruction": f"What do the posts say about {topic}?", "expect": expect}


def note(person: str) -> dict[str, Any]:
    expect = [{"tool": "send_note", "args": {"person": person}}]
    return {"instruction": f"Send a note to {person}.", "expect": expect}


def ask_graph(graph: Any) -> None:
    assert graph.invoke({"messages": [("user", "Book the room blue.")]})["messages"]


def ask_crew(crew: Any) -> None:
    given = crew.kickoff({"task": "Book the room blue."}).tasks_output[0].pydantic
    assert set(given.model_dump()) == {"room", "booked"}


AGENTS: dict[str, tuple[list[dict[str, Any]], str, Any]] = {
    "rag": (list(map(look_up, ROOMS)), "GradeDocuments", ask_graph),
    "team": ([*map(book, ROOMS), *map(note, ("Ann", "Tom"))], "Route", ask_graph),
    "crew": (list(map(book, ROOMS)), "Receipt", ask_crew),
}


FRAMEWORKS = {
    "rag": "langchain",
    "team": "langchain",
    "crew": "crewai",
}


@pytest.mark.slow  # trains, with a framework each
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_that_answers_in_a_form_is_trained(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines, form, ask = AGENTS[name]
    monkeypatch.setenv("OPENAI_API_KEY", "of their authors")
    monkeypatch.setenv("AGENTGYM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AGENTGYM_EVAL_SAMPLES", "1")
    for count in ("TEST_TASKS", "EVAL_TASKS"):
        monkeypatch.setenv(f"AGENTGYM_{count}", "4")
    monkeypatch.chdir(tmp_path)
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("\n".join(map(json.dumps, lines * 4)))
    module = f"tests.train.{MODULES.get(name, 'structured_agents')}"
    agent, reference = getattr(import_module(module), name), f"{module}:{name}"
    asked = TrainingConfig.create(
        scenario=str(tasks), agent=reference, framework=FRAMEWORKS[name]
    )
    assert probed(located(asked)).problems == []

    result = Trainer().train(
        agent=reference,
        tasks=tasks,
        episodes=64,
        yes=True,
        framework=FRAMEWORKS[name],
    )

    assert type(result.agent) is type(agent)
    ask(result.agent)
    with Store(result.artifacts.run / "rollouts.db") as store:
        rollouts, *_ = store.list_terminal(0, 40)
        calls = [c for each in rollouts for c in store.model_calls(each.rollout_id)]
    held = [call for call in calls if call.grammar and call.grammar.form == form]
    assert held
    whole = [call for call in held if call.finish_reason != "length"]
    assert all(call.tool_calls[0].name == form for call in whole)
