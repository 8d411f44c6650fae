"""What is refused before anything starts, and what is filled in."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.engines.registry import check_engine, paced_settings
from agentgym.errors import AgentGymError

ON_RAY = {"ray_kwargs.ray_init.num_gpus": 1}
Make = Callable[..., Path]


@pytest.fixture
def made(own_home: Path) -> Make:
    """Return what makes something that looks like their environment."""

    def make(verl: str = "0.8.0", agentlightning: str = "1.0.2") -> Path:
        place = own_home / "engines" / "lightning"
        packages = place / "lib" / "python3.12" / "site-packages"
        packages.mkdir(parents=True)
        (packages / f"verl-{verl}.dist-info").mkdir()
        if agentlightning:
            (packages / f"agentlightning-{agentlightning}.dist-info").mkdir()
        (place / "bin").mkdir()
        (place / "bin" / "python").write_text("")
        return place

    return make


def config(**settings: Any) -> TrainingConfig:
    return TrainingConfig.create(engine="lightning", **settings)


def refused(**settings: Any) -> str:
    with pytest.raises(AgentGymError) as error:
        check_engine(config(**settings))
    assert error.value.exit_code == 2
    return str(error.value)


def test_without_an_environment_it_says_how_to_make_one(own_home: Path) -> None:
    assert "agentgym engine install lightning" in refused()


@pytest.mark.parametrize(
    ("versions", "why"),
    [
        ({"verl": "0.9.1"}, "verl 0.9.1 is in"),
        ({"agentlightning": ""}, "has no agentlightning"),
        ({"agentlightning": "1.1.0"}, "has agentlightning 1.1.0, and this works"),
    ],
)
def test_other_releases_are_refused(
    made: Make, versions: dict[str, str], why: str
) -> None:
    made(**versions)
    said = refused()
    assert why in said
    assert "agentgym engine install lightning" in said


def test_fewer_gpus_than_asked_for_are_refused(made: Make) -> None:
    made()
    said = refused(**{"gpus.per_node": 512}, group_size=512, episodes=9000)
    assert "gpus.per_node = 512, and this machine has" in said


def test_a_machine_whose_gpus_ray_is_told_of_is_accepted(made: Make) -> None:
    made()
    summary = check_engine(config(verl=ON_RAY))
    assert "Agent Lightning's trainer" in summary.device
    assert "nano" in summary.model


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"gpu": "none"}, "it needs GPUs of this machine"),
        ({"deterministic": True}, "is a setting of --engine local"),
        ({"warm_start": True}, "cannot imitate"),
        ({"time": "30m"}, "all steps of its trainer have one size"),
        ({"algorithm": "dapo"}, "algorithm = 'dapo'"),
        ({"train_tokens": "calls"}, "every token of the model"),
        ({"failure_cost": 0.5}, "no penalty of single calls"),
        ({"judge": "openai:gpt-4.1-mini"}, "the check's"),
        ({"thinking": "off"}, "no variables of the chat template"),
        ({"lora_rank": 8}, "An adapter of rank 8"),
        ({"episodes": 10}, "less than one step of 64"),
        ({"verl.nodes": 2}, "a setting of --engine verl"),
        ({"constrain": "calls"}, "its servers restrict no tokens"),
    ],
)
def test_what_it_cannot_keep_is_refused(
    made: Make, settings: dict[str, Any], why: str
) -> None:
    made()
    assert why in refused(verl=ON_RAY, **settings)


def test_what_it_does_in_one_way_only_is_filled_in() -> None:
    found = paced_settings(config(episodes=200, model="some/model"))
    assert found.episodes == 192
    assert found.train_tokens == "all"
    assert found.failure_cost == 0.0
    assert found.lora_rank == 0
