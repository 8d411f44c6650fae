"""Exported weights load elsewhere, and answer as the agent did."""

import json
import os
from pathlib import Path

import pytest
import torch
from peft import AutoPeftModelForCausalLM, LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentgym import TrainedAgent
from agentgym.core.template_settings import TemplateSettings
from agentgym.models.nano import nano_path
from agentgym.models.template import keep_template
from tests.cli.conftest import Command, agentgym
from tests.engines.conftest import make_model, make_tokenizer
from tests.serving.agents import adapted_agent, shipped_agent

__all__ = ["agentgym"]

IDS = torch.tensor([[5, 6, 7, 8]])


@pytest.fixture
def adapter(tmp_path: Path) -> TrainedAgent:
    """Return an agent that is an adapter which changes much."""
    tokenizer, folder = make_tokenizer(), tmp_path / "base"
    base = make_model(len(tokenizer))
    base.save_pretrained(folder)
    base.config.name_or_path = base.name_or_path = str(folder)
    config = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    adapted = get_peft_model(base, config)
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    adapted.save_pretrained(str(tmp_path / "lora"))
    tokenizer.save_pretrained(tmp_path / "lora")
    return adapted_agent(tmp_path / "made", tmp_path / "lora", "owner/base")


@torch.inference_mode()
def logits(model: torch.nn.Module) -> torch.Tensor:
    found: torch.Tensor = model(input_ids=IDS).logits
    return found


@pytest.mark.slow
def test_a_model_is_what_it_was(agentgym: Command, tmp_path: Path) -> None:
    agent = shipped_agent(tmp_path / "made")
    out = tmp_path / "out"
    ended = agentgym("export", str(agent.path), "--format", "hf", "--output", str(out))
    assert (ended.code, ended.out) == (0, f"made is in {out}\n")
    for form in ("hf", "merged"):
        folder = tmp_path / form
        agent.export(folder, form)
        loaded = AutoModelForCausalLM.from_pretrained(folder)
        expected = AutoModelForCausalLM.from_pretrained(nano_path())
        assert torch.equal(logits(loaded), logits(expected))
        assert AutoTokenizer.from_pretrained(folder).chat_template
        names = {path.name for path in folder.iterdir()}
        assert {"config.json", "generation_config.json", "tokenizer.json"} <= names
        assert "model.safetensors" in names
        usual = (folder / "README.md").stat().st_mode & 0o666
        assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {usual}
        assert usual & 0o044 == 0o044 & ~os.umask(os.umask(0o022))


@pytest.mark.slow
def test_an_adapter_stays_one_or_is_merged(
    adapter: TrainedAgent, tmp_path: Path
) -> None:
    apart = adapter.export(tmp_path / "hf", "hf")
    merged = adapter.export(tmp_path / "merged", "merged")

    plain = logits(AutoModelForCausalLM.from_pretrained(tmp_path / "base"))
    expected = logits(AutoPeftModelForCausalLM.from_pretrained(apart))
    assert not torch.allclose(expected, plain, atol=0.01)
    model = AutoModelForCausalLM.from_pretrained(merged)
    torch.testing.assert_close(logits(model), expected, rtol=1e-3, atol=1e-3)
    assert AutoTokenizer.from_pretrained(merged).chat_template
    settings = json.loads((apart / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == str(tmp_path / "base")
    names = {path.name for path in merged.iterdir()}
    assert {"config.json", "model.safetensors", "chat_template.jinja"} <= names
    assert "adapter_config.json" not in names


def test_the_card_says_where_it_comes_from(
    adapter: TrainedAgent, tmp_path: Path
) -> None:
    apart = (adapter.export(tmp_path / "hf", "hf") / "README.md").read_text()
    merged = (adapter.export(tmp_path / "merged") / "README.md").read_text()
    assert "library_name: peft" in apart
    assert "base_model: owner/base" in apart
    assert "a LoRA adapter for `owner/base`" in apart
    assert "library_name: transformers" in merged
    for card in (apart, merged):
        assert "31 updates, 3,968 rollouts" in card
        assert "| tasks solved (pass^1) | 30 % | 90 % |" in card
        assert "> You repair code." in card
        assert str(tmp_path) not in card
    adapted = "vllm serve BASE --enable-lora --max-lora-rank 8 --lora-modules coding="
    assert f"{adapted}FOLDER" in apart  # the least room that vLLM has for rank 4
    assert "vllm serve FOLDER --served-model-name coding" in merged


def test_the_card_serves_the_template_as_in_training(
    adapter: TrainedAgent, tmp_path: Path
) -> None:
    keep_template(
        adapter.model_path, TemplateSettings(chat_template_kwargs={"effort": "low"})
    )
    adapter.write_card()
    card = (adapter.export(tmp_path / "hf", "hf") / "README.md").read_text()

    given = """--default-chat-template-kwargs '{"effort": "low"}'"""
    assert f"--tool-call-parser hermes \\\n        {given}" in card


def test_a_base_that_is_gone_is_told(adapter: TrainedAgent, tmp_path: Path) -> None:
    path = adapter.model_path / "adapter_config.json"
    settings = json.loads(path.read_text())
    settings["base_model_name_or_path"] = str(tmp_path / "gone")
    path.write_text(json.dumps(settings))
    adapter.write_card()
    with pytest.raises(Exception, match="No model is at") as caught:
        adapter.export(tmp_path / "out")
    assert type(caught.value).__name__ == "ModelError"
    assert not (tmp_path / "out").exists()


def test_what_is_there_stays(agentgym: Command, tmp_path: Path) -> None:
    agent = shipped_agent(tmp_path / "made")
    (tmp_path / "out").mkdir()
    ended = agentgym("export", str(agent.path), "--output", str(tmp_path / "out"))
    assert (ended.code, ended.err) == (
        2,
        f"Error: {tmp_path / 'out'} exists already: name a new folder.\n",
    )
    assert list((tmp_path / "out").iterdir()) == []
    ended = agentgym("export", str(agent.path), "--output", "x", "--format", "gguf")
    assert (ended.code, ended.err) == (
        2,
        "Error: No format is named 'gguf'; give hf or merged.\n",
    )
    file = agent.path / "agent.json"
    ended = agentgym("export", str(agent.path), "--output", str(file / "x"))
    assert ended.code == 2
    assert "a part of its path is a file" in ended.err
    ended = agentgym("export", str(agent.path), "--output", "/proc/x")
    assert ended.code == 2
    assert ended.err.startswith("Error: /proc/x cannot be written: No such file")
