"""One value for a user's agent, from nested settings and from flat ones."""

import logging
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.agent import AgentSource
from agentgym.core.config import TrainingConfig
from agentgym.core.nested.keys import agent_reference
from agentgym.core.yaml_text import read_yaml
from agentgym.errors import ConfigError

OLD = """\
scenario: coding
agent: app:agent
context: app:context
inputs: null
configurable: {user: "7"}
own_tools: stub
allow_tools: [search]
episodes: 64
"""
NEW = """\
agent:
  reference: app:agent
  context: app:context
  configurable: {user: "7"}
  own_tools: stub
  allow_tools: [search]
"""
SOURCE = AgentSource(
    reference="app:agent",
    context="app:context",
    configurable={"user": "7"},
    own_tools="stub",
    allow_tools=("search",),
)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AGENT", "CONTEXT", "INPUTS", "OWN_TOOLS", "ALLOW_TOOLS"):
        monkeypatch.delenv(f"AGENTGYM_{name}", raising=False)


def read(tmp_path: Path, text: str, **overrides: Any) -> TrainingConfig:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    return TrainingConfig.from_yaml(path, **overrides)


def test_a_file_has_the_agent_s_settings_by_either_name(tmp_path: Path) -> None:
    assert read(tmp_path, OLD).agent == SOURCE
    assert read(tmp_path, NEW).agent == SOURCE
    assert read(tmp_path, "agent: app:agent").agent == AgentSource(
        reference="app:agent"
    )


def test_settings_of_an_earlier_run_load_without_a_sentence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorded = read_yaml(OLD)
    with caplog.at_level(logging.WARNING):
        config = TrainingConfig.restore(recorded)
    assert config.agent == SOURCE
    assert TrainingConfig.restore(config.model_dump(mode="json")) == config
    assert not caplog.text
    assert agent_reference(recorded) == "app:agent"
    assert agent_reference(config.model_dump()) == "app:agent"
    assert agent_reference({}) is agent_reference({"agent": None}) is None


def test_one_part_is_replaced_without_the_others(tmp_path: Path) -> None:
    other = {"reference": "app:other"}
    assert read(tmp_path, NEW, agent="app:other").agent == SOURCE.model_copy(
        update=other
    )
    changed = read(tmp_path, NEW).replaced(inputs="app:inputs", own_tools=None)
    assert changed.agent == SOURCE.model_copy(update={"inputs": "app:inputs"})
    assert changed.replaced(agent=AgentSource()).agent == AgentSource()


def test_variables_set_parts_that_nothing_else_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTGYM_AGENT", "app:agent")
    monkeypatch.setenv("AGENTGYM_INPUTS", "app:inputs")
    monkeypatch.setenv("AGENTGYM_CONTEXT", "app:elsewhere")
    monkeypatch.setenv("AGENTGYM_ALLOW_TOOLS", '["a", "b"]')
    monkeypatch.setenv("AGENTGYM_CONFIGURABLE", '{"user": "7"}')
    found = TrainingConfig().agent
    assert (found.reference, found.context) == ("app:agent", "app:elsewhere")
    assert (found.allow_tools, found.configurable) == (("a", "b"), {"user": "7"})
    assert read(tmp_path, NEW).agent == SOURCE.model_copy(
        update={"inputs": "app:inputs"}
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"agent": {"refrence": "a:b"}}, "agent.refrence', did you mean 'agent.refe"),
        ({"agent": {"reference": "a:b", "own_tools": "live"}}, "agent.own_tools"),
        ({"own_tools": "live"}, "agent.own_tools = 'live'"),
        ({"contxt": "a:b"}, "did you mean 'context'"),
        ({"configurable": "x"}, "not of the form key=value"),
    ],
)
def test_a_wrong_part_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TrainingConfig.create(**values)
