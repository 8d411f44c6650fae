"""``.env``: what it sets, and what a file of others may not set."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.core.settings import OTHER_VARIABLES, variable_of
from agentgym.security.env_file import is_left_out
from tests.cli.conftest import Command, agentgym

__all__ = ["agentgym"]

DRY = "train", "coding", "--framework", "native", "--dry-run"


@pytest.fixture
def own_environment() -> Iterator[None]:
    """Undo what a test does to the environment."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.usefixtures("own_environment")
def test_env_file_is_read_and_the_environment_wins(
    agentgym: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTGYM_SEED", "3")
    (tmp_path / ".env").write_text("AGENTGYM_EPISODES=640\nAGENTGYM_SEED=4\n")
    plan = agentgym("train", "coding", "--framework", "native", "--dry-run", "--json")
    config = json.loads(plan.out)["config"]
    assert (config["episodes"], config["seed"]) == (640, 3)


@pytest.mark.usefixtures("own_environment")
def test_a_file_of_others_runs_no_code_and_lifts_no_guard(
    agentgym: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = os.environ.pop("AGENTGYM_HOME")
    (tmp_path / "evil.py").write_text("open('ran', 'w')\ndef make(): ...\n")
    values = {
        "AGENTGYM_AGENT": "evil:make",
        "agentgym_agent_context": "evil:make",
        "AGENTGYM_HOME": str(tmp_path / "theirs"),
        "AGENTGYM_GPU": "ssh:them@example.org",
        "AGENTGYM_UNSAFE_LOCAL_EXEC": "true",
        "AGENTGYM_VLLM__enable_x": "1",
        "PYTHONPATH": str(tmp_path),
        "LD_PRELOAD": "evil.so",
        "UV_INDEX_URL": "http://example.org",
        "RUNPOD_API_URL": "http://example.org",
    }
    taken = {"NODE_ENV": "test", "PYTHONUNBUFFERED": "1", "SHOP_URL": "http://shop"}
    lines = [f"{name}={value}\n" for name, value in (values | taken).items()]
    (tmp_path / ".env").write_text("".join(lines))
    for name in {**values, **taken}:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AGENTGYM_SEED", "3")
    ended = agentgym(*DRY, "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["config"]["agent"]["reference"] is None
    assert not (tmp_path / "ran").exists()
    assert set(values).isdisjoint(os.environ)
    assert taken.items() <= os.environ.items()
    assert all(name in ended.err for name in values), ended.err
    os.environ["AGENTGYM_HOME"] = home
    assert "AGENTGYM_HOME" not in agentgym("runs", "list").err, "a shell's own wins"


HARMLESS_GROUPS = ("rent", "gpus", "rollouts", "faults")


def test_every_setting_that_can_name_something_is_classified() -> None:
    """A new setting of text is either refused in ``.env`` or listed here."""
    harmless = {
        *("framework", "model", "engine", "tool_format", "train_roles", "name"),
        *("output", "task_choice", "algorithm", "precision", "rollouts.kind"),
        *("tracker", "thinking", "train_tokens", "constrain", "goal"),
        *("chat_template_kwargs", "faults.rates"),
        *("api_key", "engine_key", "gateway_key", "secrets"),
    }
    for name, field in TrainingConfig.fields().items():
        kind = str(field.annotation)
        is_text = any(part in kind for part in ("str", "Path", "dict", "Literal"))
        if name not in harmless and (is_text or "unsafe" in name):
            assert is_left_out(variable_of(name)), name
    for name in (*TrainingConfig.groups(), *(OTHER_VARIABLES - harmless)):
        assert is_left_out(variable_of(name)) or name in HARMLESS_GROUPS, name


def test_unreadable_env_file_is_one_paragraph(
    agentgym: Command, tmp_path: Path
) -> None:
    for content in (b"A=\xff\xfe\n", b"A=x\0y\n"):
        (tmp_path / ".env").write_bytes(content)
        ended = agentgym("runs", "list")
        assert ended.code == 2
        assert ended.err.startswith("Error: Cannot read ")
        assert ended.err.count("\n") == 1
