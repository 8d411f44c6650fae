"""Agent Lightning's settings: composed of a run's, checked by name."""

from pathlib import Path
from typing import Any

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.errors import ConfigError, UnsupportedError
from agentgym.models.nano import nano_path
from agentgym.plugins.lightning.settings import lightning_settings, started_at

ACTOR = "actor_rollout_ref.actor"


def made(**settings: Any) -> dict[str, Any]:
    return lightning_settings(TrainingConfig.create(engine="lightning", **settings))


def test_a_runs_settings_are_theirs() -> None:
    settings = made(
        algorithm="grpo",
        group_size=4,
        tasks_per_step=16,
        learning_rate=1e-4,
        entropy_coefficient=0.01,
        **{"gpus.per_node": 2, "gpus.memory_share": 0.7},
        temperature=0.8,
    )
    rollout = "actor_rollout_ref.rollout"
    assert settings["algorithm.adv_estimator"] == "grpo"
    assert settings[f"{rollout}.n"] == 4
    assert settings["data.train_batch_size"] == 16
    assert settings[f"{ACTOR}.ppo_mini_batch_size"] == 4
    assert settings[f"{ACTOR}.optim.lr"] == 1e-4
    assert settings[f"{ACTOR}.entropy_coeff"] == 0.01
    assert settings["trainer.n_gpus_per_node"] == 2
    assert settings[f"{rollout}.gpu_memory_utilization"] == 0.7
    assert settings[f"{rollout}.temperature"] == 0.8
    assert settings["actor_rollout_ref.model.path"] == str(nano_path().resolve())


@pytest.mark.parametrize(
    ("verl", "why"),
    [
        ({f"{ACTOR}.optim.lr": 1}, "set learning_rate instead"),
        ({"actor_rollout_ref.rollout.n": 2}, "set group_size instead"),
        ({"algorithm": {"adv_estimator": "gae"}}, "set algorithm instead"),
        ({"trainer.save_freq": 5}, "the run itself sets it"),
        ({"agentlightning.hooks": "mine.py"}, "the run itself sets it"),
        ({f"{ACTOR}.ppo_mini_batch_size": 9}, "from 1 to the tasks_per_step = 8"),
    ],
)
def test_a_setting_of_the_run_is_refused(verl: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        made(verl=verl)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"gpus.per_node": 4, "gpus.tensor_parallel": 3}, "does not divide the 4 GPUs"),
        ({"gpus.per_node": 3}, "A mini-batch of 16 rows cannot be shared out"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(
    settings: dict[str, Any], why: str
) -> None:
    with pytest.raises(UnsupportedError, match=why):
        made(**settings)


def test_a_start_names_the_gateway_and_the_checkpoint(tmp_path: Path) -> None:
    weights = tmp_path / "global_step_3"
    url = "http://127.0.0.1:8"
    fresh = started_at(made(), url, tmp_path, None)
    assert fresh["trainer.resume_mode"] == "disable"
    assert fresh["agentlightning.agl_base_url"] == url
    assert Path(fresh["agentlightning.hooks"]).is_file()
    resumed = started_at(made(), url, tmp_path, weights)
    assert resumed["trainer.resume_from_path"] == str(weights)
