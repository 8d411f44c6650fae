"""Made-up values: any JSON schema gives values that it accepts, or none exists."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from agentgym.core.json_schema import properties
from agentgym.core.made_up import NoValueError, made_up
from agentgym.core.tools import same_arguments
from agentgym.models import nano
from agentgym.models.jinja import compile_template
from agentgym.scenarios.schemas import spec_of_openai

_TEMPLATE = Path(nano.__file__).with_name("chat_template.jinja")
PROMPT = compile_template(_TEMPLATE.read_text())

NAMES = st.sampled_from(["a", "title", "from", "x/y", "~z", "model_config", "$ref"])
JSON_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-9, 9),
    st.sampled_from(["", "7", "true", "Ada"]),
    st.just([]),
    st.just({"title": "x"}),
)
PATTERNS = [r"^ORD-\d{4}$", r"^[A-Z]{2,3}$", "a+b", r"^(x|yy)\1$", "[^a-y ]z"]
DEFINITIONS = ["#/$defs/N", "#/$defs/Tree", "#/$defs/a%20b", "#/definitions/a~1b"]
FORMATS = ["date", "date-time", "time", "email", "uuid", "uri", "ipv4", "other"]


def _bounds(low: str, high: str, most: int = 4) -> st.SearchStrategy[dict[str, Any]]:
    pairs = st.tuples(st.integers(0, most), st.integers(0, most)).map(sorted)
    return pairs.flatmap(
        lambda p: st.sampled_from(
            [{}, {low: p[0]}, {high: p[1]}, {low: p[0], high: p[1]}]
        )
    )


def _numbers(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    steps: list[dict[str, Any]] = [{}, {"multipleOf": 5}, {"multipleOf": 0.25}]
    step = st.sampled_from(steps)
    low = st.sampled_from([{}, {"minimum": -3}, {"exclusiveMinimum": 0}])
    most: dict[str, Any] = {"exclusiveMaximum": 0.5 if kind == "number" else 9}
    high = st.sampled_from([{}, {"maximum": 50}, most])
    return st.tuples(step, low, high).map(
        lambda parts: {"type": kind, **parts[0], **parts[1], **parts[2]}
    )


def _leaves() -> st.SearchStrategy[Any]:
    texts = st.tuples(
        _bounds("minLength", "maxLength", 12),
        st.sampled_from([{}, *({"format": f} for f in FORMATS)]),
    ).map(lambda parts: {"type": "string", **parts[0], **parts[1]})
    return st.one_of(
        st.sampled_from([True, {}]),
        st.sampled_from(["boolean", "null", "string"]).map(lambda kind: {"type": kind}),
        st.just({"type": ["integer", "null"]}),
        st.just({"type": ["string", "array", "object"]}),
        st.sampled_from(["integer", "number"]).flatmap(_numbers),
        texts,
        st.sampled_from(PATTERNS).map(lambda p: {"type": "string", "pattern": p}),
        st.lists(JSON_VALUES, min_size=1, max_size=3).map(lambda v: {"enum": v}),
        JSON_VALUES.map(lambda value: {"const": value}),
        st.tuples(JSON_VALUES, st.just({"type": "integer"})).map(
            lambda pair: {**pair[1], "default": pair[0]}
        ),
        st.sampled_from([*DEFINITIONS, "#node"]).map(lambda to: {"$ref": to}),
    )


@st.composite
def _objects(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    named = draw(st.dictionaries(NAMES, inner, max_size=3))
    made: dict[str, Any] = {"type": "object", "properties": named}
    if named:
        made["required"] = draw(st.lists(st.sampled_from(list(named)), unique=True))
    match draw(st.integers(0, 7)):
        case 0:
            made["additionalProperties"] = draw(inner)
        case 1:
            made["patternProperties"] = {"^n[0-9]$": draw(inner)}
            made["minProperties"] = draw(st.integers(0, 2))
        case 2 if named:
            made["dependentRequired"] = {next(iter(named)): ["late"]}
            made["properties"] = {**named, "late": {"type": "string"}}
        case 3:
            made |= {"minProperties": 1, "propertyNames": {"maxLength": 12}}
        case 4 if named:
            first = next(iter(named))
            made |= {"if": {"required": [first]}, "then": {"required": ["so"]}}
            made["properties"] = {**named, "so": {"type": "integer"}}
        case 5 if named:
            made["anyOf"] = [{"required": [name]} for name in named]
    return made


def _lists(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    plain = st.tuples(inner, _bounds("minItems", "maxItems")).map(
        lambda parts: {"type": "array", "items": parts[0], **parts[1]}
    )
    tuples = st.lists(inner, min_size=1, max_size=3).map(
        lambda parts: {"type": "array", "prefixItems": parts, "items": False}
    )
    texts = {"type": "array", "items": {"type": "string"}, "minItems": 3}
    unique = st.just({**texts, "uniqueItems": True})
    contains = inner.map(lambda part: {"type": "array", "contains": part})
    return st.one_of(plain, tuples, unique, contains)


def _branches(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        several.map(lambda parts: {"anyOf": parts}),
        several.map(lambda parts: {"oneOf": parts}),
        several.map(lambda parts: {"allOf": parts}),
        inner.map(lambda part: {"anyOf": [part, {"type": "null"}], "default": None}),
        inner.map(lambda part: {"not": part}),
    )


PARTS = st.recursive(
    _leaves(),
    lambda inner: st.one_of(_objects(inner), _lists(inner), _branches(inner)),
    max_leaves=6,
)
SHARED = {
    "$defs": {
        "N": {"type": "integer", "default": 3},
        "a b": {"type": "object", "properties": {"title": {"type": "string"}}},
        "anchored": {"$anchor": "node", "type": "boolean"},
        "Tree": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string"},
                "inner": {"anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "null"}]},
                "list": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
            },
        },
    },
    "definitions": {"a/b": {"type": "array", "items": {"$ref": "#/$defs/N"}}},
}
SCHEMAS = _objects(PARTS).map(lambda made: {**made, **SHARED})


@pytest.mark.slow
@pytest.mark.timeout(3600)  # for as many examples as are asked for
@settings(
    max_examples=int(os.environ.get("AGENTGYM_TEST_SCHEMAS", "60")),
    deadline=None,
    derandomize="AGENTGYM_TEST_SCHEMAS" not in os.environ,
    suppress_health_check=list(HealthCheck),
)
@given(schema=SCHEMAS, seed=st.text("abc", max_size=2))
def test_any_schema_gives_values_equality_and_a_prompt(
    schema: dict[str, Any], seed: str
) -> None:
    Draft202012Validator.check_schema(schema)
    spec = spec_of_openai({"name": "act", "parameters": schema})
    assert json.loads(json.dumps(spec.to_openai())) == spec.to_openai()
    assert properties(spec.parameters).keys() == schema["properties"].keys()
    assert "act(" in PROMPT.render(tools=[spec.to_openai()], messages=[])
    judge = Draft202012Validator(spec.parameters)
    try:
        value = made_up(spec.parameters, seed, optional=0.5, accepts=spec.accepts)
    except NoValueError:
        event("no value")
        return
    assert not list(judge.iter_errors(value))
    assert spec.validate(value) == value
    read = spec.args_model.json_schema.read(value)
    assert same_arguments(spec, value, read)
    if judge.is_valid(read):
        assert same_arguments(spec, read, value)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": r"^ORD-\d{4}$"},
        {"type": "string", "pattern": r"^\w+@(a|b)\.com$", "minLength": 12},
        {"type": "string", "pattern": "[^a-y ]z", "maxLength": 2},
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        {"type": "number", "minimum": 0.1, "maximum": 0.2, "multipleOf": 0.05},
        {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 5},
        {"type": "integer", "minimum": 2, "not": {"enum": [2, 3, 4]}},
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "null"}],
         "items": False, "minItems": 2},
        {"type": "array", "items": {"enum": ["a", "b", "c"]}, "minItems": 3,
         "uniqueItems": True},
        {"allOf": [{"type": "integer", "minimum": 5}, {"maximum": 5}]},
        {"allOf": [{"properties": {"x": {"minimum": 3}}, "required": ["x"]},
                   {"properties": {"x": {"type": "integer", "maximum": 3}}}]},
        {"oneOf": [{"type": "integer"}, {"type": "number", "multipleOf": 0.5}]},
        {"type": "object", "minProperties": 2, "propertyNames": {"pattern": "^k"},
         "additionalProperties": {"type": "integer"}},
        {"type": "object", "properties": {"a": True, "b": {"const": 1}},
         "required": ["a"], "if": {"required": ["a"]}, "then": {"required": ["b"]}},
        {"$ref": "#/$defs/Tree"},
    ],
)  # fmt: skip
def test_schemas_that_allow_few_values_still_give_one(schema: dict[str, Any]) -> None:
    whole = {"type": "object", "properties": {"x": schema}, "required": ["x"], **SHARED}
    made = [made_up(whole, str(seed)) for seed in range(20)]
    assert not [each for each in made if not Draft202012Validator(whole).is_valid(each)]


@pytest.mark.parametrize(
    "schema", [False, {"enum": []}, {"type": "integer", "minimum": 3, "maximum": 2}]
)
def test_a_schema_without_values_is_said(schema: Any) -> None:
    with pytest.raises(NoValueError, match="'x'"):
        made_up({"properties": {"x": schema}, "required": ["x"]}, "", name="x")
