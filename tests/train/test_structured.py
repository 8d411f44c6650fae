"""Agents whose models answer in a form: inspected, trained, and given back."""

import asyncio
import json
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from agentgym import Trainer
from agentgym.core.config import TrainingConfig
from agentgym.models.nano import nano_path
from agentgym.rollout.located import located
from agentgym.rollout.probe import probed
from agentgym.rollout.store.store import Store

MODULES = {"crew": "structured_crew", "magentic": "structured_team"}
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


def ask_team(team: Any) -> None:
    assert asyncio.run(team.run(task="Book the room blue.")).messages


AGENTS: dict[str, tuple[list[dict[str, Any]], str, Any]] = {
    "rag": (list(map(look_up, ROOMS)), "GradeDocuments", ask_graph),
    "team": ([*map(book, ROOMS), *map(note, ("Ann", "Tom"))], "Route", ask_graph),
    "crew": (list(map(book, ROOMS)), "Receipt", ask_crew),
    "magentic": (list(map(book, ROOMS)), "LedgerEntry", ask_team),
}


FRAMEWORKS = {
    "rag": "langchain",
    "team": "langchain",
    "crew": "crewai",
    "magentic": "autogen",
}


def with_room(folder: Path) -> Path:
    """Return the shipped policy with room for 4,096 tokens, which MagenticOne needs.

    It was not trained at such lengths, and what it says there is what the grammar
    leaves it.
    """
    shutil.copytree(nano_path(), folder)
    places = {
        "config.json": "max_position_embeddings",
        "tokenizer_config.json": "model_max_length",
    }
    for name, key in places.items():
        settings = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(settings | {key: 4096}))
    return folder


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
    settings: dict[str, Any] = {"framework": FRAMEWORKS[name]}
    if name == "magentic":
        settings |= {"model": str(with_room(tmp_path / "roomy")), "max_tokens": 400}
        settings |= {"rollout_timeout_s": 300, "tasks_per_step": 2, "group_size": 4}
    asked = TrainingConfig.create(scenario=str(tasks), agent=reference, **settings)
    assert probed(located(asked)).problems == []

    result = Trainer().train(
        agent=reference,
        tasks=tasks,
        episodes=16 if name == "magentic" else 64,
        yes=True,
        **settings,
    )

    assert type(result.agent) is type(agent)
    ask(result.agent)
    with Store(result.artifacts.run / "rollouts.db") as store:
        rollouts, *_ = store.list_terminal(0, 40)
        calls = [c for each in rollouts for c in store.model_calls(each.rollout_id)]
    held = [call for call in calls if call.grammar and call.grammar.form == form]
    assert held
    whole = [call for call in held if call.finish_reason != "length"]
    assert whole
    assert all(call.tool_calls[0].name == form for call in whole)
