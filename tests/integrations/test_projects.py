"""Agents that a project's own files name, found without importing them."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.errors import ConfigError, NotFoundError, UsageError
from agentgym.integrations.agent_import import is_reference, load_agent, reference_of
from agentgym.integrations.projects import project_agents
from tests.cli.conftest import Command, agentgym

__all__ = ["agentgym"]

GRAPH = """
import os
from desk_of_a_test.tools import ANSWER

made = ANSWER, os.environ["DESK_MODE"]
"""
CREW = """
from crewai.project import CrewBase
raise AssertionError("it is read, not imported")

@CrewBase
class SupportCrew:
    pass

class Other:
    pass
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a folder with a package in src; undo what importing it changes."""
    package = tmp_path / "src" / "desk_of_a_test"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "graph.py").write_text(GRAPH)
    (package / "tools.py").write_text("ANSWER = 42\n")
    (package / "crew.py").write_text(CREW)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = dict(os.environ)
    yield tmp_path
    os.environ.clear()
    os.environ.update(before)
    for name in [name for name in sys.modules if name.startswith("desk_of_a_test")]:
        del sys.modules[name]


def describe(project: Path, **more: object) -> None:
    """Write ``langgraph.json``."""
    graphs = {
        "desk": "./src/desk_of_a_test/graph.py:made",
        "by_entry": {"path": "./src/desk_of_a_test/graph.py:made"},
        "other": "./src/desk.ts:graph",
    }
    data = {"dependencies": ["."], "graphs": graphs, "env": ".env.desk", **more}
    (project / "langgraph.json").write_text(json.dumps(data))


def test_a_graph_is_named_as_in_langgraph_json(project: Path) -> None:
    describe(project)
    text = "DESK_MODE=test\nAGENTGYM_EPISODES=3\nLD_PRELOAD=x\n"
    (project / ".env.desk").write_text(text)
    found = project_agents()
    assert [agent.name for agent in found] == ["desk", "by_entry"]
    assert reference_of("desk") == "desk_of_a_test.graph:made"
    assert "DESK_MODE" not in os.environ  # nothing was asked for yet
    assert load_agent(reference_of("desk")) == (42, "test")
    assert not {"AGENTGYM_EPISODES", "LD_PRELOAD"} & os.environ.keys()
    with pytest.raises(NotFoundError, match="mean 'desk'.*Available"):
        reference_of("dsek")


def test_a_package_of_the_project_comes_before_an_installed_one_of_its_name(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As ``agents``, a folder that many projects have, and a package of OpenAI's."""
    installed = tmp_path_factory.mktemp("installed")
    (installed / "desk_of_a_test").mkdir()
    (installed / "desk_of_a_test" / "__init__.py").write_text("raise AssertionError")
    sys.path.append(str(installed))
    describe(project, env={"DESK_MODE": "own"})
    assert load_agent(reference_of("desk")) == (42, "own")


def test_the_module_of_another_project_is_not_taken_for_this_ones(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As in a notebook that goes from folder to folder."""
    for folder in (project, tmp_path_factory.mktemp("second")):
        (folder / "desk_of_a_test.py").write_text(f"made = {folder.name!r}")
    os.chdir(project)
    assert load_agent("desk_of_a_test:made") == project.name
    os.chdir(folder)
    with pytest.raises(UsageError, match="already .*Use a process for each project"):
        load_agent("desk_of_a_test:made")


@pytest.mark.parametrize("typed", [False, True])
def test_a_file_that_python_cannot_name_is_loaded_by_its_path(
    project: Path, typed: bool
) -> None:
    """As ``3.5_agent.py`` of a tutorial; the files of its folder are importable."""
    folder = project / "3 agents"
    folder.mkdir()
    (folder / "steps_of_a_test.py").write_text("ANSWER = 42\n")
    source = "from steps_of_a_test import ANSWER\nmade = [ANSWER]\n"
    (folder / "3.5_agent.py").write_text(source)
    describe(project, graphs={"steps": "./3 agents/3.5_agent.py:made"})
    path = "3 agents/3.5_agent.py:made"
    made = load_agent(path if typed else reference_of("steps"))
    assert made == [42]
    assert load_agent(reference_of(made)) is made
    assert is_reference(path)
    config = TrainingConfig.create(agent=path)
    assert config.agent_name == "made"


def test_variables_may_stand_in_the_file_and_the_environment_wins(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe(project, env={"DESK_MODE": "file", "DESK_API_KEY": "s3cr3tvalue"})
    monkeypatch.setenv("DESK_MODE", "shell")
    assert load_agent(reference_of("desk")) == (42, "shell")
    assert os.environ["DESK_API_KEY"] == "s3cr3tvalue"


@pytest.mark.parametrize("text", ["{", "[" * 10_000, "\0"])
def test_a_file_that_is_malformed_is_one_error(project: Path, text: str) -> None:
    (project / "langgraph.json").write_text(text)
    with pytest.raises(ConfigError, match=r"Cannot read .*langgraph\.json"):
        project_agents()


def test_a_crew_is_named_by_its_class(project: Path) -> None:
    assert project_agents() == []
    (project / "pyproject.toml").write_text('[tool.crewai]\ntype = "crew"\n')
    [crew] = project_agents()
    assert (crew.name, crew.framework) == ("SupportCrew", "crewai")
    assert reference_of("SupportCrew") == "desk_of_a_test.crew:SupportCrew"


def test_inspect_without_an_agent_lists_them(
    agentgym: Command, project: Path, tmp_path: Path
) -> None:
    nothing = agentgym("inspect")
    assert nothing.code == 2
    assert "no langgraph.json with a Python graph" in nothing.err
    describe(project)
    (project / "pyproject.toml").write_text("[tool.crewai]\n")
    listed = agentgym("inspect").out.splitlines()
    assert listed[:2] == [
        "desk  (desk_of_a_test.graph:made, langgraph.json)",
        "  agentgym inspect desk",
    ]
    assert "  agentgym inspect SupportCrew" in listed
    rows = json.loads(agentgym("inspect", "--json").out)
    assert [row["name"] for row in rows] == ["desk", "by_entry", "SupportCrew"]
    assert "Did you mean 'desk'" in agentgym("train", "--agent", "dsek").err
