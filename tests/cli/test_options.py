"""Options that are made of settings."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from agentgym.cli.app import build
from agentgym.cli.options import named_agent
from agentgym.core.config import TrainingConfig
from agentgym.core.settings import about


def options_of(command: str) -> dict[str, Any]:
    group: Any = typer.main.get_command(build())
    made = group.get_command(None, command)
    return {name: each for each in made.params for name in each.opts}


def test_train_has_thirty_options_apart_from_those_of_plugins() -> None:
    of_plugins = {"--command", "--check-command", "--data", "--categories"}
    for name, field in TrainingConfig.fields().items():
        if "." in name and not name.startswith("agent."):
            of_plugins.add(str(about(field, "option")).partition("/")[0])
    named = {name for name in options_of("train") if name.startswith("--")}
    own = named - of_plugins
    assert len(own) <= 30, sorted(own)
    assert {"--judge", "--judge-max-cost", "--spot", "--gpus-per-node"} <= named


def test_options_say_what_the_setting_says() -> None:
    options = options_of("train")
    assert options["--episodes"].help == "Most training rollouts."
    assert "again" in str(options["--configurable"].help)
    assert options["--agent"].metavar == "MODULE:NAME"
    assert "--temperature" in options_of("eval")


def test_a_name_of_a_projects_files_is_that_agent_where_a_model_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs = {"graphs": {"desk": "./desk.py:graph"}}
    (tmp_path / "langgraph.json").write_text(json.dumps(graphs))
    monkeypatch.chdir(tmp_path)
    assert named_agent("desk", None, may_be_saved=True) == "desk"
    assert named_agent("desk", None, may_be_saved=True, model="nano") == "desk:graph"
    assert named_agent("other", None, may_be_saved=True, model="nano") == "other"
