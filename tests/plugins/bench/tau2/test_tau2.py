"""τ²-bench from a checkout: its verdicts, and what is missing is named."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.errors import UsageError
from agentgym.plugins.bench.tau2 import litellm_model
from agentgym.scenarios.registry import get_scenario
from tests.some import some

SCRIPT = Path(__file__).with_name("verdicts.py")
ROOT = Path(__file__).parents[4]


@pytest.mark.slow
@pytest.mark.skipif(
    not {"TAU2_CHECKOUT", "TAU2_ENVIRONMENT"} <= os.environ.keys(),
    reason="TAU2_CHECKOUT, and TAU2_ENVIRONMENT with its packages, are not set",
)
def test_the_verdict_is_that_of_tau2() -> None:
    python = Path(os.environ["TAU2_ENVIRONMENT"], "bin", "python")
    ended = subprocess.run(
        [python, SCRIPT, os.environ["TAU2_CHECKOUT"]],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    found = [json.loads(line) for line in some(ended.stdout.splitlines())]
    assert len(found) == 12
    assert all(each["ours"] == each["theirs"] for each in found), found
    assert {each["ours"] for each in found} == {0.0, 1.0}


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("tau2", "give --data FOLDER"),
        ("tau2?data=.", "is not a checkout of tau2-bench: it has no src/tau2"),
        ("tau2?data=.&categories=hotel", "No domain of tau2 is named 'hotel'"),
    ],
)
def test_what_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=said):
        get_scenario(reference)


@pytest.mark.parametrize(
    ("model", "asked"),
    [
        ("openai:gpt-4.1", ("openai/gpt-4.1", {})),
        (
            "http://localhost:8000/v1#qwen3",
            (
                "openai/qwen3",
                {"api_base": "http://localhost:8000/v1", "api_key": "none"},
            ),
        ),
    ],
)
def test_the_user_s_model_is_named_as_elsewhere(model: str, asked: Any) -> None:
    assert litellm_model(model) == asked
    config = TrainingConfig.create(user=model)
    assert config.plugin_groups["user"] == {"model": model}


def test_a_model_of_this_machine_cannot_play_a_user() -> None:
    with pytest.raises(UsageError, match="--user-model nano"):
        litellm_model("nano")
