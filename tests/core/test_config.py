"""TrainingConfig: where values come from, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from agentgym import TrainingConfig
from agentgym.core.prices import Prices
from agentgym.errors import ConfigError


@pytest.fixture
def yaml_file(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text("scenario: coding\nepisodes: 300\nlearning_rate: 0.001\n")
    return path


def test_defaults_train_coding_through_langchain() -> None:
    config = TrainingConfig.create()
    assert (config.scenario, config.framework) == ("coding", "langchain")
    assert config.episodes == 1_792
    assert TrainingConfig.create(time="5m").episodes == 10_000


def test_environment_sets_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTGYM_EPISODES", "500")
    monkeypatch.setenv("AGENTGYM_DETERMINISTIC", "true")
    config = TrainingConfig.create()
    assert config.episodes == 500
    assert config.deterministic


@pytest.mark.parametrize("name", ["AGENTGYM_HOME", "AGENTGYM_API_KEY"])
def test_variables_of_other_readers_are_no_settings(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "/somewhere")
    assert TrainingConfig.create().scenario == "coding"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("AGENTGYM_EPISODE", "did you mean 'AGENTGYM_EPISODES'?"),
        ("agentgym_Epsodes", "did you mean 'AGENTGYM_EPISODES'?"),
        ("AGENTGYM_RENT_SPOTT", "did you mean 'AGENTGYM_RENT_SPOT'?"),
        ("AGENTGYM_HOMES", "did you mean 'AGENTGYM_HOME'?"),
        ("AGENTGYM_ZZZ", "known: AGENTGYM_<SETTING> for ['agent', "),
    ],
)
def test_unknown_variable_is_refused_with_the_nearest(
    monkeypatch: pytest.MonkeyPatch, name: str, hint: str
) -> None:
    monkeypatch.setenv(name, "5")
    with pytest.raises(ConfigError) as caught:
        TrainingConfig.create()
    assert f"unknown environment variable {name!r}, {hint}" in str(caught.value)


def test_file_wins_over_environment_and_arguments_over_both(
    yaml_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTGYM_EPISODES", "500")
    assert TrainingConfig.from_yaml(yaml_file).episodes == 300
    assert TrainingConfig.from_yaml(str(yaml_file), episodes=7).episodes == 7
    assert TrainingConfig.from_yaml(yaml_file, episodes=None).episodes == 300


def test_a_mapping_replaces_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AGENTGYM_CHAT_TEMPLATE_KWARGS", '{"enable_thinking": true}')
    assert TrainingConfig().chat_template_kwargs == {"enable_thinking": True}
    given = TrainingConfig(chat_template_kwargs={"mode": "short"})
    assert given.chat_template_kwargs == {"mode": "short"}


def test_bad_environment_value_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTGYM_EPISODES", "many")
    with pytest.raises(ConfigError, match="episodes = 'many'"):
        TrainingConfig.create()


@pytest.mark.parametrize(
    "values",
    [
        {"episodes": -5},
        {"group_size": 1},
        {"token_prices": "1,4"},
        {"failure_cost": -1},
        {"learning_rate": 0},
        {"learning_rate": float("inf")},
        {"temperature": float("nan")},
        {"gpu": "yes"},
    ],
    ids=str,
)
def test_impossible_value_is_quoted(values: dict[str, Any]) -> None:
    key, value = next(iter(values.items()))
    with pytest.raises(ConfigError) as caught:
        TrainingConfig.create(**values)
    assert f"{key} = {value!r}" in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["absent.yaml", "."])
def test_file_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="Cannot read the configuration"):
        TrainingConfig.from_yaml(tmp_path / name)


def test_replaced_keeps_the_rest_and_validates() -> None:
    config = TrainingConfig.create(episodes=64, seed=3)
    assert config.replaced(episodes=128, seed=None).model_dump() == {
        **config.model_dump(),
        "episodes": 128,
    }
    with pytest.raises(ConfigError, match="episodes = -1"):
        config.replaced(episodes=-1)


def test_settings_round_trip_as_json() -> None:
    config = TrainingConfig.create(episodes=64, name="a.b-c", learning_rate=1e-4)
    assert TrainingConfig.create(**config.model_dump(mode="json")) == config


def test_roles_are_a_list_or_names_with_commas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = ("planner", "Head Scribe")
    named = TrainingConfig.create(train_roles=" planner,Head  Scribe, planner")
    assert named.train_roles == wanted
    assert TrainingConfig.restore(named.model_dump(mode="json")) == named
    file = tmp_path / "run.yaml"
    file.write_text('train_roles: [planner, "Writer, junior"]')
    assert TrainingConfig.from_yaml(file).train_roles == ("planner", "Writer, junior")
    monkeypatch.setenv("AGENTGYM_TRAIN_ROLES", "planner,Head Scribe")
    assert TrainingConfig.create().train_roles == wanted


@pytest.mark.parametrize("value", ["", "planner,,worker", [], ["planner", " "]])
def test_a_role_without_a_name_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="name the roles to train, as in planner,sup"):
        TrainingConfig.create(train_roles=value)


def test_prices_of_tokens_are_written_as_one_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AGENTGYM_TOKEN_PRICES", "2,0.5,8")
    assert TrainingConfig().token_prices == Prices(prompt=2, cached=0.5, response=8)
