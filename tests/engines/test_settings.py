"""Settings of libraries below engines, as users write them."""

import pytest

from agentgym.engines.settings import flat, overrides
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
