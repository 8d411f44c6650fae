"""Settings of libraries below engines, as users write them."""

from typing import Any

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.engines import settings
from agentgym.engines.settings import flat, overrides, precision_of
from agentgym.errors import ConfigError


def test_settings_on_the_command_line_are_yaml() -> None:
    assert overrides(["verl.a.b=1e-3"]) == {"verl": {"a.b": 0.001}}
    assert overrides(["verl.a=[1, x]", "vllm.b=true", "verl.c=b=c"]) == {
        "verl": {"a": [1, "x"], "c": "b=c"},
        "vllm": {"b": True},
    }


@pytest.mark.parametrize(
    "text", ["verl.a", "verl.=1", "coding", "vrl.a=1", "vllm.a=[", "vllm=1"]
)
def test_what_is_no_setting_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="verl.KEY=VALUE|cannot be read"):
        overrides([text])


def test_nested_mappings_become_dotted_keys() -> None:
    assert flat({"a": {"b": 1, "c": {}}, "d.e": 2}) == {"a.b": 1, "a.c": {}, "d.e": 2}


@pytest.mark.parametrize(
    ("given", "device", "expected"),
    [
        ({}, "cpu", "bf16"),
        ({}, "cuda", "auto"),
        ({"precision": "float32"}, "cpu", "float32"),
        ({"deterministic": True}, "cpu", "float32"),
        ({"engine": "vllm"}, "cpu", "float32"),
        ({"model": "nano"}, "cpu", "float32"),
    ],
)
def test_a_processor_computes_in_bfloat16_where_that_pays(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], device: str, expected: str
) -> None:
    monkeypatch.setattr(settings, "is_small", lambda model: model == "nano")
    for has_half in (True, False):
        monkeypatch.setattr(settings, "computes_in_half", lambda: has_half)  # noqa: B023
        config = TrainingConfig.create(**{"model": "a/b", **given})
        wanted = expected if has_half or expected != "bf16" else "float32"
        assert precision_of(config, device) == wanted
