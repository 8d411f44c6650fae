"""Options that are settings: those that are named like one, and no others."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from agentgym.cli.evaluate import evaluate
from agentgym.cli.train import train
from agentgym.core.config import TrainingConfig
from agentgym.core.settings import Settings
from agentgym.plugins.collect.commands import rollout
from agentgym.plugins.collect.config import RolloutConfig
from agentgym.plugins.improve.commands import improve

POLICY = {"scenario", "framework", "model", "gpu", "seed", "unsafe_local_exec"}
TEMPLATE = {"tool_format", "chat_template", "thinking", "constrain"}
TRAINED = {
    "agent",
    "engine",
    "gpus_per_node",
    "nodes",
    "episodes",
    "time",
    "algorithm",
    "deterministic",
    "tracker",
    "goal",
}
TRAINED |= {"name", "output", "spot", "max_hourly", "max_cost"}
JUDGE = {"judge", "judge_rubric", "judge_max_cost"}
JUDGE |= {"judge_price_in", "judge_price_out"}
YOURS = {
    "yes",
    "warm_start",
    "train_roles",
    "context",
    "inputs",
    "on_interrupt",
    "allow_host",
    "configurable",
}
YOURS |= {"prompts", "role_adapters"}
ROLLED_OUT = {"agent", "max_steps", "max_tokens_per_step", "temperature", "timeout_s"}


@pytest.mark.parametrize(
    ("command", "settings", "expected"),
    [
        (
            train,
            TrainingConfig,
            POLICY | TEMPLATE | TRAINED | YOURS | JUDGE,
        ),
        (
            evaluate,
            TrainingConfig,
            POLICY
            | TEMPLATE
            | JUDGE
            | {"concurrency", "eval_temperature", "cache_requests"}
            | {"context", "inputs", "on_interrupt", "configurable", "prompts"},
        ),
        (
            improve,
            TrainingConfig,
            (POLICY - {"scenario"})
            | {
                "agent",
                "context",
                "inputs",
                "on_interrupt",
                "configurable",
                "episodes",
                "output",
            }
            | {"scenario", "max_cost", "yes", "goal"},
        ),
        (
            rollout,
            RolloutConfig,
            ROLLED_OUT | {"save", "cache_requests", "concurrency", "unsafe_local_exec"},
        ),
    ],
    ids=["train", "eval", "improve", "rollout"],
)
def test_options_named_like_a_setting_set_it(
    command: Callable[..., Any], settings: type[Settings], expected: set[str]
) -> None:
    found = set(inspect.signature(command).parameters) & set(settings.names())
    assert found == expected
