"""Nested settings, by each way in, and their flat keys."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.core.nested.groups import JudgeSettings, RentSettings, VerlSettings
from agentgym.core.nested.keys import FLAT_KEYS, GROUPS, flattened, nested
from agentgym.core.settings import read_assignments, variable_of
from agentgym.errors import ConfigError

DEVICE = {"trainer.device": "cpu"}
FLAT: dict[str, Any] = {
    "judge": "openai:gpt-4.1-mini",
    "judge_rubric": "Shorter is better.",
    "judge_weight": 1.5,
    "judge_price_in": 0.5,
    "judge_price_out": 2.0,
    "judge_max_cost": 4.0,
    "spot": True,
    "max_hourly": 3.0,
    "max_cost": 5.0,
    "nodes": 2,
    "offload": True,
    "engine_server": "host:1",
    "verl": DEVICE,
}
NESTED: dict[str, Any] = {
    "judge": {
        "model": "openai:gpt-4.1-mini",
        "rubric": "Shorter is better.",
        "weight": 1.5,
        "price_in": 0.5,
        "price_out": 2.0,
        "max_cost": 4.0,
    },
    "rent": {"spot": True, "max_hourly": 3.0, "max_cost": 5.0},
    "verl": {"nodes": 2, "offload": True, "server": "host:1", "settings": DEVICE},
}
VALUES = (FLAT, NESTED, flattened(NESTED))
WANTED = {
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
    found = read_assignments(words, TrainingConfig.names())
    return TrainingConfig.create(**found)


@pytest.mark.parametrize(
    ("way", "values"),
    [
        *itertools.product(
            (by_code, by_replacing, by_file, by_record, by_assignments), VALUES
        ),
        (by_variables, FLAT),
    ],
)
def test_settings_of_groups_are_set(
    way: Way, values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = way(values, tmp_path, monkeypatch)
    assert {name: getattr(config, name) for name in WANTED} == WANTED
    assert TrainingConfig.restore(config.model_dump(mode="json")) == config


def test_a_record_may_set_nothing() -> None:
    unset: dict[str, Any] = dict.fromkeys(("judge", "judge_max_cost", "max_cost"))
    assert TrainingConfig.restore(unset | {"verl": {}}) == TrainingConfig()


def test_every_field_of_a_group_has_one_flat_key() -> None:
    fields = [
        f"{group}.{name}" for group in GROUPS for name in GROUPS[group].model_fields
    ]
    assert sorted(FLAT_KEYS.values()) == sorted(fields)
    assert set(GROUPS) <= TrainingConfig.model_fields.keys()


@pytest.mark.parametrize(
    ("verl", "wanted"),
    [
        (DEVICE, {"settings": DEVICE}),
        ({"nodes": 2, **DEVICE}, {"nodes": 2, "settings": DEVICE}),
        ({"settings": {"a.b": 1}, **DEVICE}, {"settings": {"a.b": 1, **DEVICE}}),
        ({"settings": None, **DEVICE}, {"settings": DEVICE}),
        ({"nodes": 2}, {"nodes": 2}),
        ({}, {"settings": {}}),
    ],
)
def test_other_names_below_verl_are_settings_of_verl(
    verl: dict[str, Any], wanted: dict[str, Any]
) -> None:
    assert nested({"verl": verl, "seed": 1}) == {"verl": wanted, "seed": 1}


def test_a_flat_key_wins_over_the_group() -> None:
    pairs: list[tuple[str, Any]] = [("judge_weight", 1), ("judge", {"weight": 2})]
    for order in (pairs, pairs[::-1]):
        assert flattened(dict(order)) == {"judge.weight": 1}


def test_one_field_changes_without_the_others() -> None:
    config = TrainingConfig.create(**NESTED)
    changed = config.replaced(max_cost=9, judge={"weight": 2}, spot=None)
    assert changed.rent == RentSettings(spot=True, max_hourly=3.0, max_cost=9.0)
    assert changed.judge == JudgeSettings(**NESTED["judge"] | {"weight": 2})
    assert config.replaced(rent={"max_cost": None}).rent.max_cost is None
    assert config.replaced(verl={}).verl == config.verl.model_copy(
        update={"settings": {}}
    )
    assert config.replaced(judge=JudgeSettings()).judge == JudgeSettings()


def test_a_variable_sets_a_field_that_nothing_else_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTGYM_JUDGE_WEIGHT", "2")
    monkeypatch.setenv("AGENTGYM_MAX_COST", "7")
    monkeypatch.setenv("AGENTGYM_RENT", '{"spot": true}')
    found = by_file({"judge": "openai:x", "rent": {"max_cost": 1}}, tmp_path)
    assert found.judge == JudgeSettings(model="openai:x", weight=2)
    assert found.rent == RentSettings(spot=True, max_cost=1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"judge": {"wieght": 1}}, "'judge.wieght', did you mean 'judge.weight'"),
        ({"judge_wieght": 1}, "'judge_wieght', did you mean 'judge_weight'"),
        ({"judge_weight": -1}, "judge.weight = -1: Input should be greater than 0"),
        ({"max_cost": float("nan")}, "rent.max_cost = nan"),
        ({"rent": 5, "spot": True}, "rent = 5: "),
        ({"verl": {"nodes": 0}}, "verl.nodes = 0"),
        ({"verl": {"settings": [1], **DEVICE}}, r"verl.settings = \[1\]"),
    ],
)
def test_a_wrong_setting_of_a_group_is_named(
    values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        TrainingConfig.create(**values)


def test_an_unknown_variable_is_answered_with_a_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AGENTGYM_RENT_SPOT", "1")
    with pytest.raises(ConfigError, match="did you mean 'AGENTGYM_SPOT'"):
        TrainingConfig.create()
