"""Saved agents are named after the agent; versions are of one agent and its tasks."""

from pathlib import Path

import pytest

from agentgym import TrainedAgent, Trainer, TrainingConfig
from agentgym.errors import UsageError
from agentgym.train.export import keep
from tests.cli.conftest import Command, agentgym
from tests.train.agents import make_agent

__all__ = ["agentgym"]

EXPORTS = (
    *("to_langchain", "to_autogen", "to_crewai"),
    *("to_agent_framework", "to_llamaindex", "to_openai_agents", "to_pydantic_ai"),
    *("to_smolagents", "to_strands"),
)


def saved(folder: Path, *, agent: str, tasks: str, tool: str = "f") -> TrainedAgent:
    """Write the folder of an agent, as a run leaves it."""
    config = {"scenario": tasks, "agent": agent}
    about = {"agent": agent, "tools": [tool], "config": config, "folder": "/apps/first"}
    return make_agent(folder, 0.2, 0.8, scenario="tasks", **about)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"agent": "desk:graph"}, "desk"),
        ({"agent": "app.agents:graph"}, "agents"),
        ({"agent": "shop.desk:make_agent"}, "desk"),
        ({"agent": "app.agents:support_desk"}, "support_desk"),
        ({"agent": "desk:graph", "name": "front"}, "front"),
        ({"name": "front-20261124-101500"}, "front"),
        ({"scenario": "a/my tasks.jsonl"}, "my_tasks"),
        ({}, "coding"),
    ],
)
def test_an_agent_is_named_after_itself(settings: dict[str, str], name: str) -> None:
    assert TrainingConfig.create(**settings).agent_name == name


def test_versions_are_of_the_same_agent_and_tasks(
    tmp_path: Path, agentgym: Command
) -> None:
    first = saved(tmp_path / "1", agent="desk:graph", tasks="/a/tasks.jsonl")
    assert keep(first, "desk").name == "desk@1"
    again = saved(tmp_path / "2", agent="desk:graph", tasks="/a/tasks.jsonl", tool="g")
    assert keep(again, "desk").name == "desk@2"
    moved = saved(tmp_path / "3", agent="desk:graph", tasks="/b/tasks.jsonl", tool="g")
    assert keep(moved, "desk").name == "desk@3"
    other = keep(
        saved(tmp_path / "4", agent="desk:graph", tasks="/c/tasks.jsonl", tool="h"),
        "desk",
    )
    assert other.name == "desk-2@1"
    assert other.is_default
    assert "first version of desk-2" in other.reason
    stranger = saved(tmp_path / "5", agent="bank:graph", tasks="/a/tasks.jsonl")
    assert keep(stranger, "desk").name == "desk-3@1"
    taken = agentgym("train", "coding", "--name", "desk", "--dry-run")
    assert taken.code == 2
    assert "'desk' is the name of another agent: desk@3 is desk:graph" in taken.err
    plan = Trainer(TrainingConfig.create(scenario="coding", framework="native")).plan()
    assert plan.saved_as == "coding"


def test_an_agent_of_another_folder_says_where_it_is_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(
        saved(tmp_path / "1", agent="elsewhere_desk:graph", tasks="/a/tasks.jsonl"),
        "desk",
    )
    app = tmp_path / "app"
    app.mkdir()
    monkeypatch.chdir(app)
    trained = TrainedAgent.load("desk")
    for method in EXPORTS:
        with pytest.raises(UsageError) as told:
            getattr(trained, method)()
        assert "desk@1 is your agent elsewhere_desk:graph" in str(told.value)
        assert "Load it in /apps/first, where it was trained" in str(told.value)
        assert f"{method}(agent=...)" in str(told.value)
