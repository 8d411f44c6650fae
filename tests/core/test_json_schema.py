"""JSON schemas: which arguments a tool accepts, and which it reads as the same."""

from typing import Any

import pytest
from pydantic import ValidationError

from agentgym.core.tools import same_arguments
from agentgym.scenarios.schemas import spec_of_openai

INNER = {"type": "object", "properties": {"copies": {"type": "integer", "default": 1}}}


def spec_of(**schema: Any) -> Any:
    return spec_of_openai({"name": "act", "parameters": schema})


def spec_of_arguments(**arguments: Any) -> Any:
    return spec_of(type="object", properties=arguments)


@pytest.mark.parametrize(
    ("schema", "one", "other"),
    [
        ({"type": "boolean", "default": False}, {}, {"x": False}),
        ({"$ref": "#/$defs/N", "default": 3}, {}, {"x": 3}),
        (INNER, {"x": {}}, {"x": {"copies": 1}}),
        ({**INNER, "default": {}}, {}, {"x": {"copies": "1"}}),
        ({"type": "array", "items": INNER}, {"x": [{}]}, {"x": [{"copies": 1}]}),
        ({"anyOf": [INNER, {"type": "null"}]}, {"x": {}}, {"x": {"copies": 1}}),
        ({"oneOf": [{"type": "null"}, INNER]}, {"x": {"copies": "1"}}, {"x": {}}),
        ({"allOf": [INNER]}, {"x": {"copies": "1"}}, {"x": {}}),
        ({"type": "integer"}, {"x": "7"}, {"x": 7}),
        ({"type": ["number", "null"]}, {"x": "7.5"}, {"x": 7.5}),
        ({"type": "integer"}, {"x": 7.0}, {"x": 7}),
        ({"type": "boolean"}, {"x": "true"}, {"x": True}),
        ({"$ref": "#/$defs/N"}, {"x": "7"}, {"x": 7}),
        ({"type": ["string", "null"]}, {"x": None}, {}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"x": None}, {}),
        ({"type": "string", "nullable": True}, {"x": None}, {}),
        ({"nullable": True, "allOf": [INNER]}, {"x": None}, {}),
        ({"type": "string", "format": "date-time"},
         {"x": "2026-01-13T09:00:00Z"}, {"x": "2026-01-13T09:00:00+00:00"}),
        ({"type": "object", "additionalProperties": {"type": "integer"}},
         {"x": {"Ada": "7"}}, {"x": {"Ada": 7}}),
    ],
)  # fmt: skip
def test_arguments_that_a_tool_reads_as_the_same_are_equal(
    schema: dict[str, Any], one: dict[str, Any], other: dict[str, Any]
) -> None:
    spec = spec_of(properties={"x": schema}, **{"$defs": {"N": {"type": "integer"}}})
    spec.validate(one)
    spec.validate(other)
    assert same_arguments(spec, one, other)
    assert same_arguments(spec, other, one)


@pytest.mark.parametrize(
    ("schema", "one", "other"),
    [
        ({"type": "boolean", "default": False}, {}, {"x": True}),
        ({"type": "string"}, {"x": "7"}, {"x": "07"}),
        ({"type": ["string", "integer"]}, {"x": "7"}, {"x": 7}),
        ({}, {"x": 1}, {"x": True}),
        ({"type": ["string", "null"], "default": "a"}, {"x": None}, {}),
        (True, {"x": None}, {"x": 0}),
    ],
)
def test_other_arguments_differ(
    schema: Any, one: dict[str, Any], other: dict[str, Any]
) -> None:
    spec = spec_of_arguments(x=schema)
    spec.validate(one)
    spec.validate(other)
    assert not same_arguments(spec, one, other)


@pytest.mark.parametrize(
    ("schema", "wrong"),
    [
        ({"type": "integer"}, "seven"),
        ({"type": "string"}, 7),
        ({"type": "string", "default": None}, None),
        ({"type": "integer", "maximum": 5}, "7"),
        (False, 1),
    ],
)
def test_what_a_schema_forbids_is_refused(schema: Any, wrong: Any) -> None:
    with pytest.raises(ValidationError):
        spec_of_arguments(x=schema).validate({"x": wrong})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/definitions/a~1b", "definitions": {"a/b": INNER}},
        {"$ref": "#/$defs/a%20b", "$defs": {"a b": INNER}},
        {"properties": INNER["properties"], "anyOf": [{"required": ["copies"]}, {}]},
        {"allOf": [{"$ref": "#/x/0"}], "x": [INNER]},
    ],
)
def test_arguments_are_found_wherever_a_schema_names_them(
    schema: dict[str, Any],
) -> None:
    spec = spec_of(**schema)
    spec.validate({"copies": 2})
    with pytest.raises(ValidationError, match="pages"):
        spec.validate({"copies": 2, "pages": 3})


def test_an_argument_that_strict_mode_requires_may_be_left_out() -> None:
    place: dict[str, Any] = {"type": "string", "default": "sea"}
    note = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    inner = {"who": {"type": "string"}, "note": note}
    strict = {"type": "object", "additionalProperties": False}
    parcel = {**strict, "properties": inner, "required": [*inner]}
    arguments = {"parcel": parcel, "way": place}
    spec = spec_of(**strict, properties=arguments, required=[*arguments])
    written = {"parcel": {"who": "Ada", "note": None}, "way": "sea"}
    assert spec.accepts({"parcel": {"who": "Ada"}})
    assert same_arguments(spec, {"parcel": {"who": "Ada"}}, written)
    assert not spec.accepts({"parcel": {"note": None}})
    assert not spec.accepts({"way": "sea"})


def test_a_pattern_that_python_cannot_read_refuses_nothing() -> None:
    spec = spec_of_arguments(x={"type": "string", "pattern": r"^\p{L}+$"})
    assert spec.validate({"x": "Ada"}) == {"x": "Ada"}


def test_a_value_named_title_stays_in_the_schema() -> None:
    default = {"title": "x"}
    spec = spec_of_arguments(title={"type": "object", "default": default, "title": "T"})
    shown = spec.parameters["properties"]
    assert shown == {"title": {"type": "object", "default": default}}
