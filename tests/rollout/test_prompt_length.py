"""Prompts of a scenario that are longer than its model reads."""

import json
import shutil
from pathlib import Path

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.core.trajectory import ModelCall
from agentgym.models.folder import model_source
from agentgym.rollout.prompt_length import compare_with_context, prompt_notes
from agentgym.scenarios.registry import get_scenario


@pytest.mark.slow
@pytest.mark.parametrize(("words", "notes"), [(3, 0), (20_000, 1)])
def test_the_plan_notes_prompts_that_the_model_cannot_read(
    tmp_path: Path, words: int, notes: int
) -> None:
    tool = {
        "name": "find",
        "description": "Find it.",
        "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}},
    }
    path = tmp_path / "long.jsonl"
    path.write_text(
        "".join(
            json.dumps(
                {
                    "instruction": f"{'word ' * words}: find {number}",
                    "tools": [tool],
                    "expect": [{"tool": "find", "args": {"number": number}}],
                }
            )
            + "\n"
            for number in range(12)
        )
    )
    config = TrainingConfig.create(scenario=str(path), model="nano")
    found = prompt_notes(config, get_scenario(str(path)))

    assert len(found) == notes
    assert all("and nano reads " in note for note in found)
    assert all("such attempts end before the model is called" in n for n in found)
    own = config.replaced(agent="app:graph")
    assert prompt_notes(own, get_scenario(str(path))) == []


def test_the_limit_of_a_tokenizer_counts(tmp_path: Path) -> None:
    folder = tmp_path / "short"
    shutil.copytree(model_source("nano"), folder)
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    call = ModelCall(messages=[{"role": "user", "content": "word " * 90}])
    config = TrainingConfig.create(scenario="coding", model=str(folder))
    assert compare_with_context(config, [[call]]) == ("", "")
    file.write_text(json.dumps({**settings, "model_max_length": 64}))
    later = ModelCall(messages=[{"role": "user", "content": "word"}])
    why, _ = compare_with_context(config, [[call, call]])
    assert f"more than the 64 that {folder} reads" in why
    why, note = compare_with_context(config, [[call, later]])
    assert (why, "a rollout ends there, unless" in note) == ("", True)
    why, note = compare_with_context(config, [[later, call]])
    assert why == ""
    assert f"more than the 64 that {folder} reads" in note
