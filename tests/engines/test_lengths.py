"""Limits that fit the model: how long answers are, and how many run at once."""

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agentgym import Trainer, TrainingConfig
from agentgym.engines.lengths import paced
from agentgym.engines.registry import paced_settings
from agentgym.models.folder import model_source
from agentgym.rollout.session import gateway_settings
from agentgym.ui.tables import plan_view

_LARGE = 40_000_000
"""Parameters; the file that says so is sparse."""
_SWITCH = (
    "{%- if add_generation_prompt and enable_thinking is defined "
    "and not enable_thinking -%}<think></think>{%- endif -%}"
)


def model(folder: Path, *, context: int = 8192, thinks: bool = False) -> str:
    """Write a folder of a model with nano's tokenizer and 40 million parameters."""
    nano = Path(model_source("nano"))
    folder.mkdir()
    for path in nano.iterdir():
        if path.suffix != ".safetensors" and path.is_file():
            shutil.copy(path, folder)
    settings = json.loads((folder / "config.json").read_text())
    settings["max_position_embeddings"] = context
    (folder / "config.json").write_text(json.dumps(settings))
    header = json.dumps(
        {"w": {"dtype": "F32", "shape": [_LARGE], "data_offsets": [0, 4 * _LARGE]}}
    ).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + 4 * _LARGE)
    if thinks:
        template = folder / "chat_template.jinja"
        template.write_text(template.read_text() + _SWITCH)
    return str(folder)


def planned(tmp_path: Path, **settings: Any) -> tuple[TrainingConfig, str]:
    """Return the settings of a plan, and its row about answers."""
    given = {"framework": "native", "gpu": "none", "output": tmp_path / "runs"}
    plan = Trainer(TrainingConfig.create(**{**given, **settings})).plan()
    console = Console(width=200)
    with console.capture() as shown:
        console.print(plan_view(plan))
    rows = shown.get().splitlines()
    return plan.config, next(row for row in rows if "answers" in row)


@pytest.mark.slow
def test_limits_fit_the_model_and_those_that_are_set_stay(tmp_path: Path) -> None:
    nano, words = planned(tmp_path)
    assert (nano.max_tokens, nano.timeout_s, nano.in_flight) == (160, 60, 64)
    assert "at most 160 tokens each; a rollout is ended as hanging after 60 s" in words

    folder = model(tmp_path / "large")
    large, words = planned(tmp_path, model=folder)
    assert (large.max_tokens, large.timeout_s) == (1024, 600)
    assert (large.in_flight, large.workers) == (32, 1)
    assert "at most 1,024 tokens each" in words
    assert "half of" not in words
    assert gateway_settings(large).max_tokens == 1024

    own = {"max_tokens": 160, "rollout_timeout_s": 60, "concurrency": 64, "workers": 2}
    given, words = planned(tmp_path, model=folder, **own)
    assert {name: getattr(given, name) for name in own} == own
    assert "at most 160 tokens each" in words


def test_a_deterministic_run_uses_the_cpu_and_its_concurrency(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentgym.engines.local.support.find_device", lambda _: "cuda")
    given = {"model": model(tmp_path / "large"), "engine": "local", "gpu": "auto"}
    on_gpu = paced_settings(TrainingConfig(**given))
    assert on_gpu.in_flight == 64
    assert paced_settings(TrainingConfig(**given, deterministic=True)).in_flight == 32


@pytest.mark.slow
def test_programs_have_time_to_start() -> None:
    """Sixty-four interpreters at once need most of a minute on two cores."""
    given = {"scenario": "tasks.jsonl", "model": "nano"}
    own = paced(TrainingConfig.create(**given, agent="app:graph"))
    program = paced(TrainingConfig.create(**given, agent="command:python agent.py"))
    assert (own.timeout_s, program.timeout_s) == (60, 600)


@pytest.mark.slow
def test_reasoning_has_longer_answers_and_a_short_context_shorter_ones(
    tmp_path: Path,
) -> None:
    folder = model(tmp_path / "thinks", thinks=True)
    for thinking, tokens in (("auto", 4096), ("on", 4096), ("off", 1024)):
        found, _ = planned(tmp_path, model=folder, thinking=thinking)
        assert found.max_tokens == tokens, thinking
        assert found.timeout_s == 600 * tokens / 1024

    short, words = planned(tmp_path, model=model(tmp_path / "short", context=1536))
    assert short.max_tokens == 768
    assert "at most 768 tokens each, half of the context of 1,536 tokens" in words


@pytest.mark.parametrize("tokens", [None, 300])
def test_an_estimate_of_memory_counts_the_answers_that_a_run_will_have(
    tmp_path: Path, tokens: int | None
) -> None:
    folder = model(tmp_path / "large")
    config = TrainingConfig.create(
        model=folder, gpu="none", framework="native", max_tokens=tokens
    )
    open_plan, set_plan = (
        Trainer(each.replaced(output=tmp_path / "runs")).plan().memory.split(" of ")[0]
        for each in (config, config.replaced(max_tokens=tokens or 1024))
    )
    assert open_plan == set_plan
