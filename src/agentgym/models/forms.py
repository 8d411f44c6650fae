"""Requests for an answer in a JSON schema, or up to a stop sequence.

Providers restrict the tokens of an answer with a ``response_format``. A policy instead
gets one more tool, whose arguments follow the schema and become the message's content.
So its prompt shows the fields, and training updates the call.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from agentgym.core.openai import chosen_tools, names_tool, wants_call
from agentgym.core.policy import ChatRequest, ChatResult
from agentgym.core.tools import parse_arguments
from agentgym.core.trajectory import ModelCall
from agentgym.security.redaction import quoted

_ANY = {"name": "json"}
_ANY_FIELDS = {"type": "object"}
_DESCRIPTION = "Give the answer in this form."


class Form(NamedTuple):
    """A tool that stands for a request's JSON schema; its name is empty in NO_FORM."""

    name: str = ""
    is_strict: bool = True


NO_FORM = Form()


def form_as_tool(body: Mapping[str, Any]) -> tuple[dict[str, Any], Form]:
    """Replace a request's JSON schema by a tool that the model must call.

    If the request has other tools, the model may call one of them instead.
    """
    asked = body.get("response_format")
    kind = asked.get("type") if isinstance(asked, Mapping) else None
    if not isinstance(asked, Mapping) or kind not in ("json_schema", "json_object"):
        return dict(body), NO_FORM
    given = dict(asked.get("json_schema") or ()) if kind == "json_schema" else _ANY
    name, schema = _checked(given)
    others = list(body.get("tools") or ())
    taken = {
        each["function"].get("name")
        for each in others
        if isinstance(each, Mapping) and isinstance(each.get("function"), Mapping)
    }
    while name in taken:
        name += "_answer"
    function = {
        "name": name,
        "description": given.get("description") or _DESCRIPTION,
        "parameters": schema,
    }
    kept = {key: body[key] for key in body if key != "response_format"}
    choice = kept.get("tool_choice")
    if not others or choice == "none":
        others, choice = [], {"type": "function", "function": {"name": name}}
    elif choice in (None, "auto"):
        choice = "required"
    tools = [*others, {"type": "function", "function": function}]
    made = {**kept, "tools": tools, "tool_choice": choice}
    return made, Form(name, given.get("strict") is not False)


def _checked(given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name and schema in ``json_schema``; raise ValueError if malformed."""
    name = given.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError(
            f"response_format.json_schema = {quoted(given)} has no name: write "
            '{"name": "answer", "schema": {"type": "object", ...}}.'
        )
    schema = given.get("schema")
    if schema is None:
        return name, dict(_ANY_FIELDS)
    if not isinstance(schema, Mapping):
        raise ValueError(f"The schema {name!r} of response_format is not an object.")
    if schema.get("type", "object") != "object":
        raise ValueError(
            f"The schema {name!r} of response_format has the type "
            f"{quoted(schema['type'])}; it must be an object, whose fields are the "
            "answer."
        )
    return name, dict(schema)


def form_given(message: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Move the arguments of the call of tool ``name`` into the message's content."""
    # Otherwise the agent's own parser reports the error.
    calls = message.get("tool_calls") or () if name else ()
    given = [c["function"] for c in calls if c["function"]["name"] == name]
    if not given or parse_arguments(given[0]["arguments"]) is None:
        return dict(message)
    kept = {key: message[key] for key in message if key != "tool_calls"}
    return {**kept, "content": given[0]["arguments"]}


def answers_any_object(call: ModelCall) -> bool:
    """Return whether a model call answered a request for any JSON, without a schema."""
    made = {each.name for each in call.tool_calls}
    return call.wants_call and any(
        function.get("name") in made
        and function.get("parameters") == _ANY_FIELDS
        and function.get("description") == _DESCRIPTION
        for function in (tool.get("function") or {} for tool in call.tools)
    )


def request_in_form(
    messages: list[dict[str, Any]],
    options: Mapping[str, Any],
    form: Form,
    **sampling: Any,
) -> ChatRequest:
    """Build a policy's ChatRequest from the messages and options of a request."""
    choice = options.get("tool_choice")
    offered = chosen_tools(list(options.get("tools") or ()), choice)
    names = {tool["function"]["name"] for tool in offered}
    return ChatRequest(
        messages,
        offered,
        wants_call=wants_call(choice),
        one_call=names_tool(choice) or options.get("parallel_tool_calls") is False,
        form=form.name if form.name in names else "",
        is_strict=form.is_strict,
        stop=asked_stop(options),
        **sampling,
    )


def asked_stop(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the stop sequences in a request's options."""
    asked = options.get("stop") or ()
    texts = (asked,) if isinstance(asked, str) else asked
    is_list = isinstance(texts, list | tuple)
    if not is_list or not all(isinstance(each, str) for each in texts):
        raise ValueError(
            f"stop = {quoted(asked)} is neither a text nor a list of texts."
        )
    return tuple(each for each in texts if each)


def _end(stop: Sequence[str] | None, text: str) -> int | None:
    """Return the position of the first stop sequence in ``text``, or None."""
    found = [at for end in stop or () if end and (at := text.find(end)) >= 0]
    return min(found, default=None)


def until_stop(stop: Sequence[str] | None, result: ChatResult) -> ChatResult:
    """Cut an answer before its first stop sequence; its tokens stay as sampled."""
    end = _end(stop, result.content or "")
    if end is None:
        return result
    content = (result.content or "")[:end]
    return replace(result, content=content, tool_calls=[], finish_reason="stop")


async def stream_until_stop(
    stop: Sequence[str] | None, pieces: AsyncIterator[str | ChatResult]
) -> AsyncIterator[str | ChatResult]:
    """Yield text up to the first stop sequence, then the cut ChatResult."""
    # An end of the text that may begin a stop sequence is held back.
    text, shown = "", 0
    async for piece in pieces:
        if isinstance(piece, str):
            text += piece
            safe = _end(stop, text)
            safe = len(text) - _held(stop, text) if safe is None else safe
            ready, last = text[shown:safe], None
        else:
            last = until_stop(stop, piece)
            ready = (last.content or "")[shown:]
        shown += len(ready)
        if ready:
            yield ready
        if last is not None:
            yield last


def _held(stop: Sequence[str] | None, text: str) -> int:
    """Return how many last characters of ``text`` may begin a stop sequence."""
    return max(
        (n for end in stop or () for n in range(len(end)) if text.endswith(end[:n])),
        default=0,
    )
