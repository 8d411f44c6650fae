"""Which part of an answer in a JSON schema is free text."""

from typing import Any

import pytest

from agentgym.core.formats.free_text import free_text

STRING = {"type": "string"}


def schema(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(fields)}


ROUTE = {"$ref": "#/$defs/Route"}
DEFINED = {"$defs": {"Route": {"enum": ["a", "b"]}}}


@pytest.mark.parametrize(
    ("given", "text", "free"),
    [
        (
            schema(next={"enum": ["a"]}, why=STRING),
            '{"next": "a", "why": "no"}',
            ["no"],
        ),
        (schema(next=ROUTE, why=STRING) | DEFINED, '{"next": "a", "why": "n"}', ["n"]),
        (schema(ok={"type": "boolean"}, why=STRING), '{"ok": true, "why": ""}', [""]),
        (schema(n={"type": "integer"}), '{"n": 3}', []),
        (schema(grade=STRING), '{"grade": "yes"}', []),
        (
            schema(n={"type": "number"}, tags={"type": "array", "items": STRING}),
            '{"n": 1.5, "tags": ["x", "y"]}',
            ["x", "y"],
        ),
        (
            schema(
                done=schema(why=STRING, answer={"type": "boolean"}),
                day={"type": "string", "format": "date"},
            ),
            '{"done": {"why": "it is \\"so\\"", "answer": true}, "day": "2026-01-01"}',
            ['it is \\"so\\"'],
        ),
        (
            schema(n={"type": "integer"}, why={"anyOf": [STRING, {"type": "null"}]}),
            '{"n": 1, "why": "w"}',
            ["w"],
        ),
        (
            schema(n={"type": "integer"}, who={"anyOf": [STRING, {"const": "x"}]}),
            '{"n": 1, "who": "x"}',
            [],
        ),
        (
            {**schema(n={"type": "integer"}), "additionalProperties": STRING},
            '{"n": 1, "more": "m"}',
            ["m"],
        ),
        ({"$ref": "#"}, '{"a": "b"}', []),
    ],
)
def test_text_beside_decisions_is_free(
    given: dict[str, Any], text: str, free: list[str]
) -> None:
    whole = f"call {text} end"
    found = free_text(whole, (5, 5 + len(text)), given)
    assert [whole[start:end] for start, end in found] == [f'{each}"' for each in free]
