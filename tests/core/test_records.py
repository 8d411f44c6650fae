"""Records: built at their first use, whole then."""

from pydantic_core import to_jsonable_python

from agentgym.core.records import FrozenRecord, Record


class Inner(FrozenRecord):
    size: int = 1


class Outer(Record):
    by_name: dict[str, Inner | None]


def test_a_record_inside_of_another_is_written_by_pydantics_functions() -> None:
    made = Outer.model_validate({"by_name": {"a": {"size": 2}}})
    assert to_jsonable_python(made.by_name["a"]) == {"size": 2}
    assert Inner.model_json_schema()["properties"].keys() == {"size"}
