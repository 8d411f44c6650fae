"""``agentgym engine``, and what a dry run shows of an engine's own configuration."""

from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Command


def test_check_says_what_is_missing_and_ends_with_1(agentgym: Command) -> None:
    ended = agentgym("engine", "check", "verl")
    assert ended.code == 1
    assert "MISS  environment: engine = 'verl' needs an environment" in ended.out


def test_another_engine_is_refused_with_the_nearest(agentgym: Command) -> None:
    for verb in ("check", "install"):
        ended = agentgym("engine", verb, "vrl")
        assert ended.code == 2
        assert "Did you mean 'verl'?" in ended.err


def test_a_dry_run_shows_the_configuration_where_it_could_not_run(
    agentgym: Command,
) -> None:
    words = ["--engine", "verl", "verl.nodes=2", "--dry-run"]
    key = "actor_rollout_ref.rollout.max_num_seqs"
    ended = agentgym("train", "coding", f"verl.{key}=32", *words)
    assert ended.code == 2
    shown = yaml.safe_load(ended.out)
    assert shown["trainer.nnodes"] == 2
    assert shown[key] == 32
    assert "agentgym engine install verl" in ended.err


def test_a_dry_run_shows_the_command_of_vllm(agentgym: Command) -> None:
    words = ["--engine", "vllm", "--dry-run"]
    ended = agentgym("train", "coding", "vllm.max_num_seqs=32", *words)
    assert ended.code == 2
    assert "vllm serve" in ended.out
    assert "    --max-num-seqs 32 \\\n" in ended.out
    assert "agentgym engine install vllm" in ended.err


@pytest.mark.parametrize("form", ["verl:\n  {}", "verl:\n  settings:\n    {}"])
def test_settings_of_verl_go_over_a_file(agentgym: Command, form: str) -> None:
    other = "actor_rollout_ref.actor.ppo_max_token_len_per_gpu"
    Path("run.yaml").write_text(
        f"scenario: coding\nengine: verl\n{form.format(f'{other}: 4096')}\n"
    )
    word = "verl.actor_rollout_ref.rollout.max_num_seqs=16"
    ended = agentgym("train", word, "--config", "run.yaml", "--dry-run")
    assert "max_num_seqs: 16" in ended.out
    assert f"{other}: 4096" in ended.out
