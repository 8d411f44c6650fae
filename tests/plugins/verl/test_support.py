"""What is refused before anything starts, and how the environment is found."""

import socket
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentgym.core.config import TrainingConfig
from agentgym.engines import environments
from agentgym.engines.registry import check_engine
from agentgym.errors import AgentGymError, EngineError, UsageError
from agentgym.plugins.verl import support
from tests.plugins.verl.conftest import make_environment

Make = Callable[..., Path]


@pytest.fixture
def made(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Return what makes something that looks like an environment with verl."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return partial(make_environment, own_home)


def refused(**settings: Any) -> str:
    with pytest.raises(AgentGymError) as error:
        check_engine(TrainingConfig.create(engine="verl", **settings))
    assert error.value.exit_code == 2
    return str(error.value)


def test_without_an_environment_it_says_how_to_make_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "agentgym engine install verl" in refused()


def test_fewer_gpus_than_asked_for_are_refused(made: Make) -> None:
    made()
    assert "gpus.per_node = 999, and this machine has" in refused(
        **{"gpus.per_node": 999}
    )


def test_several_machines_want_a_cluster(made: Make) -> None:
    made()
    assert "RAY_ADDRESS" in refused(**{"verl.nodes": 2})


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"gpu": "none"}, "gpu = 'none' with engine = 'verl'"),
        ({"deterministic": True}, "is a setting of --engine local"),
        (
            {"warm_start": True, "verl": {"model_engine": "megatron"}},
            "warm_start with verl.model_engine = 'megatron'",
        ),
        ({"precision": "bf16"}, "'bf16' is a setting of --engine local or vllm"),
        ({"gradient_checkpointing": False}, "a setting of --engine local or vllm"),
        ({"model": "./nowhere"}, "No model is at"),
        ({"verl": {"trainer.nnodes": 2}}, "set verl.nodes instead"),
    ],
)
def test_what_cannot_be_meant_is_refused(settings: dict[str, Any], why: str) -> None:
    assert why in refused(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"gpus.per_node": 2},
        {"verl.nodes": 2},
        {"verl": {"trainer.device": "cuda"}},
    ],
)
def test_other_engines_refuse_what_is_verls(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"of --engine (vllm or )?verl"):
        check_engine(TrainingConfig.create(**settings))


@pytest.mark.parametrize("engine", ["local", "vllm"])
def test_other_engines_have_no_value_model(engine: str) -> None:
    config = TrainingConfig.create(engine=engine, algorithm="ppo")
    with pytest.raises(UsageError, match="which only --engine verl does"):
        check_engine(config)


def test_a_cluster_is_asked_at_the_plan_which_names_all_gpus(
    made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made()
    config = TrainingConfig.create(
        engine="verl", **{"verl.nodes": 2, "gpus.per_node": 8}
    )
    with closing(socket.create_server(("127.0.0.1", 0))) as cluster:
        port = cluster.getsockname()[1]
        for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}", "auto"):
            monkeypatch.setenv("RAY_ADDRESS", address)
            assert check_engine(config).device == "2 x 8 GPUs, verl"
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    told = refused(**{"verl.nodes": 2})
    assert f"RAY_ADDRESS = '127.0.0.1:{port}': nothing answers there" in told
    assert "ray start --head" in told


def test_what_is_set_over_verls_defaults_is_shown_first(
    made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TrainingConfig.create(engine="verl", seed=3)
    first = "# Set by this run, over verl's defaults:\n"
    shown = support.VerlEngines().composed(config)
    assert shown.startswith(first)
    assert "actor_rollout_ref.actor.fsdp_config.seed: 3" in shown
    assert shown.endswith(
        "# The defaults are shown once the environment exists. "
        "Make it with: agentgym engine install verl\n"
    )

    python = made()
    python.write_text("#!/bin/sh\necho 'all: of it'\n")
    shown = support.VerlEngines().composed(config)
    assert shown.startswith(first)
    ours, whole = yaml.safe_load_all(shown)
    assert ours["actor_rollout_ref.rollout.seed"] == 3
    assert whole == {"all": "of it"}

    python.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(support, "_COMPOSE_S", 0.2)
    shown = support.VerlEngines().composed(config)
    assert shown.startswith(first)
    assert "did not answer within 0.2 s" in shown


def test_why_verl_cannot_compose_is_told(
    made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = made()
    python.write_text("#!/bin/sh\necho 'agentgym: no such key' >&2\nexit 1\n")
    with pytest.raises(EngineError, match="its configuration: no such key"):
        support.VerlEngines().composed(TrainingConfig.create(engine="verl"))


def test_check_tells_what_is_missing(
    made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [found.name for found in support.check()] == ["environment"]
    python = made()
    python.write_text("#!/bin/sh\necho \"No module named 'ray'\" >&2\nexit 1\n")
    found = {finding.name: finding for finding in support.check()}
    assert found["verl"] == ("verl", True, "0.9.1")
    assert not found["vllm"].is_good
    assert found["imports"].text == "verl cannot be imported: No module named 'ray'"


def test_a_check_tries_a_tiny_model_where_nothing_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    *_, last = support.VerlEngines().examine()
    assert (last.name, last.is_good) == ("start", False)
    assert "nothing was started" in last.text
    asked: list[TrainingConfig] = []

    def fails(_: object, config: TrainingConfig) -> None:
        asked.append(config)
        raise EngineError("verl has failed: no room")

    good = environments.Checked("verl", True, "0.9.1")
    monkeypatch.setattr(support, "check", lambda: [good])
    monkeypatch.setattr(support.VerlEngines, "create", fails)
    *_, last = support.VerlEngines().examine()
    assert last.text == "nano did not answer: verl has failed: no room"
    assert [(config.engine, config.model) for config in asked] == [("verl", "nano")]
