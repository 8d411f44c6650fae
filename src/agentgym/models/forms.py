"""Answers in a JSON schema, which a policy gives by calling a tool.

Providers restrict the tokens of such an answer (``response_format``, the default of
``ChatOpenAI.with_structured_output``). A policy in this process is offered one more
tool whose arguments are the schema; the call that it makes is the content of the
message that the agent reads, and training updates the call.
"""

from collections.abc import Mapping
from typing import Any

from agentgym.core.tools import parse_arguments


def form_as_tool(body: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return a chat completion's request with a tool in place of a JSON schema.

    Together with other tools, the model must call one of them or the schema's.

    Returns:
        The request, and the name of that tool; empty if no schema was asked for.
    """
    asked = body.get("response_format")
    schema = asked.get("json_schema") if isinstance(asked, Mapping) else None
    if not isinstance(schema, Mapping) or not isinstance(schema.get("name"), str):
        return dict(body), ""
    name = schema["name"]
    function = {
        "name": name,
        "description": schema.get("description") or "Give the answer in this form.",
        "parameters": schema.get("schema") or {"type": "object", "properties": {}},
    }
    kept = {key: body[key] for key in body if key != "response_format"}
    others = list(kept.get("tools") or ())
    named = {"type": "function", "function": {"name": name}}
    choice = kept.get("tool_choice") if others else named
    tools = [*others, {"type": "function", "function": function}]
    return {**kept, "tools": tools, "tool_choice": choice or "required"}, name


def form_given(message: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a message of OpenAI's whose call of ``name`` is its content.

    Without such a call, or where its arguments are not an object, it stays as it is:
    the agent's own parser reports the error.
    """
    calls = message.get("tool_calls") or () if name else ()
    given = [c["function"] for c in calls if c["function"]["name"] == name]
    if not given or parse_arguments(given[0]["arguments"]) is None:
        return dict(message)
    kept = {key: message[key] for key in message if key != "tool_calls"}
    return {**kept, "content": given[0]["arguments"]}
