"""Writes calls in each form, as models do, for tests that read them back."""

import json
from typing import Any

from agentgym.core.formats import FORMATS

TOOL = {
    "type": "function",
    "function": {
        "name": "save",
        "parameters": {
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "count": {"type": "integer"},
                "share": {"type": "number"},
                "on": {"type": "boolean"},
                "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "items": {"type": "array", "items": {"type": "string"}},
                "more": {"type": "object"},
            },
        },
    },
}


def write(form: str, name: str, arguments: dict[str, Any]) -> str:
    """Return a call as a model of this form would write it."""
    body = json.dumps(arguments, ensure_ascii=False)
    if form == "hermes":
        return f'<tool_call>\n{{"name": "{name}", "arguments": {body}}}\n</tool_call>'
    if form == "json":
        return f'{{"name": "{name}", "parameters": {body}}}'
    if form == "mistral":
        return f"[TOOL_CALLS]{name}[ARGS]{body}"
    if form == "harmony":
        header = f"<|channel|>commentary to=functions.{name} <|constrain|>json"
        return f"{header}<|message|>{body}<|call|>"
    if form == "xml":
        inner = "".join(
            f"<parameter={key}>\n{_bare(value)}\n</parameter>\n"
            for key, value in arguments.items()
        )
        return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"
    if form == "gemma":
        return f"<|tool_call>call:{name}{_gemma(arguments)}<tool_call|>"
    assert form == "pythonic"
    inner = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    return f"<|tool_call_start|>[{name}({inner})]<|tool_call_end|>"


def _bare(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _gemma(value: Any) -> str:
    if isinstance(value, str):
        return f'<|"|>{value}<|"|>'
    if isinstance(value, dict):
        return "{" + ",".join(f"{k}:{_gemma(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_gemma, value)) + "]"
    return json.dumps(value)


ALL = list(FORMATS)
