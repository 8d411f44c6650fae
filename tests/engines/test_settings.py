"""Settings of libraries below engines, as users write them."""

from agentgym.engines.settings import flat


def test_nested_mappings_become_dotted_keys() -> None:
    assert flat({"a": {"b": 1, "c": {}}, "d.e": 2}) == {"a.b": 1, "a.c": {}, "d.e": 2}
