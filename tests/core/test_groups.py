"""Settings of groups, by each way in: nested, by dotted names, and short."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.agent import AgentSource
from agentgym.core.config import TrainingConfig, agent_reference
from agentgym.core.settings import about, read_assignments, variable_of
from agentgym.errors import ConfigError
from agentgym.plugins.cloud.group import RentSettings
from agentgym.plugins.judge.group import JudgeSettings
from agentgym.plugins.verl.group import VerlSettings

DEVICE = {"trainer.device": "cpu"}
NESTED: dict[str, Any] = {
    "agent": {"reference": "app:agent", "configurable": {"user": "7"}},
    "judge": {"model": "openai:gpt-4.1-mini", "rubric": "Short.", "max_cost": 4.0},
    "rent": {"spot": True, "max_hourly": 3.0, "max_cost": 5.0},
    "verl": {"nodes": 2, "offload": True, "settings": DEVICE},
}
DOTTED = TrainingConfig.flat(NESTED)
SHORT = NESTED | {"verl": {"nodes": 2, "offload": True, **DEVICE}}
WANTED = {
    "agent": AgentSource(**NESTED["agent"]),
    "judge": JudgeSettings(**NESTED["judge"]),
    "rent": RentSettings(**NESTED["rent"]),
    "verl": VerlSettings(**NESTED["verl"]),
}
Way = Callable[[dict[str, Any], Path, pytest.MonkeyPatch], TrainingConfig]


def by_code(values: dict[str, Any], *_: Any) -> TrainingConfig:
    return TrainingConfig.create(**values)


def by_replacing(values: dict[str, Any], *_: Any) -> TrainingConfig:
    return TrainingConfig().replaced(**values)


def by_file(values: dict[str, Any], folder: Path, *_: Any) -> TrainingConfig:
    (folder / "run.yaml").write_text(json.dumps(values))
    return TrainingConfig.from_yaml(folder / "run.yaml")


def by_record(values: dict[str, Any], *_: Any) -> TrainingConfig:
    return TrainingConfig.restore({"scenario": "coding", "seed": 0, **values})


def by_variables(
    values: dict[str, Any], _: Path, patch: pytest.MonkeyPatch
) -> TrainingConfig:
    for key, value in values.items():
        text = value if isinstance(value, str) else json.dumps(value)
        patch.setenv(variable_of(key), text)
    return TrainingConfig()


def by_assignments(values: dict[str, Any], *_: Any) -> TrainingConfig:
    words = [f"{key}={json.dumps(value)}" for key, value in values.items()]
    return TrainingConfig.create(**read_assignments(words, TrainingConfig))


@pytest.mark.parametrize(
    ("way", "values"),
    list(
        itertools.product(
            (by_code, by_replacing, by_file, by_record, by_assignments, by_variables),
            (NESTED, DOTTED, SHORT),
        )
    ),
)
def test_settings_of_groups_are_set(
    way: Way, values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = way(values, tmp_path, monkeypatch)
    assert {name: getattr(config, name) for name in WANTED} == WANTED
    assert TrainingConfig.restore(config.model_dump(mode="json")) == config


def test_a_value_alone_is_the_group_s_main_setting() -> None:
    config = TrainingConfig.create(agent="app:agent", judge="openai:x")
    assert config.agent == AgentSource(reference="app:agent")
    assert JudgeSettings.of(config) == JudgeSettings(model="openai:x")
    assert TrainingConfig.restore({"judge": None, "verl": {}}) == TrainingConfig()
    assert agent_reference(config.model_dump()) == "app:agent"
    assert agent_reference({}) is agent_reference({"agent": None}) is None


def test_one_setting_changes_without_the_others() -> None:
    config = TrainingConfig.create(**NESTED)
    changed = config.replaced(rent={"max_cost": 9}, judge={"weight": 2}, agent="b:c")
    assert RentSettings.of(changed) == RentSettings(
        spot=True, max_hourly=3.0, max_cost=9.0
    )
    assert JudgeSettings.of(changed).model == "openai:gpt-4.1-mini"
    assert changed.agent.configurable == {"user": "7"}
    assert RentSettings.of(config.replaced(rent={"max_cost": None})).max_cost is None
    more = config.replaced(**{"verl.data.seed": 3})
    assert VerlSettings.of(more).settings == {"data.seed": 3, **DEVICE}
    assert config.replaced(agent=AgentSource()).agent == AgentSource()


def test_a_variable_sets_what_nothing_else_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTGYM_JUDGE_WEIGHT", "2")
    monkeypatch.setenv("AGENTGYM_RENT_MAX_COST", "7")
    monkeypatch.setenv("AGENTGYM_RENT", '{"spot": true}')
    monkeypatch.setenv("AGENTGYM_AGENT_ALLOW_TOOLS", '["a", "b"]')
    found = by_file({"judge": "openai:x", "rent": {"max_cost": 1}}, tmp_path)
    assert JudgeSettings.of(found) == JudgeSettings(model="openai:x", weight=2)
    assert RentSettings.of(found) == RentSettings(spot=True, max_cost=1)
    assert found.agent.allow_tools == ("a", "b")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"judge": {"wieght": 1}}, "'judge.wieght', did you mean 'judge.weight'"),
        ({"judge_weight": 1}, "'judge_weight', did you mean 'judge.weight'"),
        ({"max_cost": 1}, "did you mean 'judge.max_cost' or 'rent.max_cost'"),
        ({"agent": {"refrence": "a:b"}}, "did you mean 'agent.reference'"),
        ({"judge.weight": -1}, "judge.weight = -1: Input should be greater than 0"),
        ({"rent.max_cost": float("nan")}, "rent.max_cost = nan"),
        ({"rent": 5, "rent.spot": True}, "rent = 5: "),
        ({"verl": {"nodes": 0}}, "verl.nodes = 0"),
        ({"verl": {"settings": [1], **DEVICE}}, r"verl.settings = \[1\]"),
        ({"agent": {"own_tools": "live"}}, "agent.own_tools = 'live'"),
        ({"agent.configurable": "x"}, "not of the form key=value"),
    ],
)
def test_a_wrong_setting_of_a_group_is_named(
    values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        TrainingConfig.create(**values)


def test_every_setting_is_described() -> None:
    for name, field in TrainingConfig.fields().items():
        assert (field.description or "").endswith("."), name
        assert about(field, "panel") or name.partition(".")[0] in (
            "verl",
            "vllm",
            "gpus",
        )


def test_a_stranger_s_faulty_settings_are_a_warning(tmp_path: Path) -> None:
    (tmp_path / "faulty.py").write_text(
        "from agentgym.core.settings import SettingsGroup\n"
        "class Faulty(SettingsGroup):\n    size: int\n"
    )
    info = tmp_path / "faulty-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[agentgym.settings]\nfaulty=faulty:Faulty\n"
    )
    made = "from agentgym import TrainingConfig; print(TrainingConfig().seed)"
    found = subprocess.run(
        [sys.executable, "-c", made],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "0\n"
    assert "The settings 'faulty' cannot be loaded" in found.stderr
