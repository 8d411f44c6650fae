"""A tasks file from logs: what users asked, and the calls that were made for them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentgym.core.openai import joined_text
from agentgym.core.tools import parse_arguments
from agentgym.errors import UsageError
from agentgym.scenarios.tool_tasks.task_file import numbered_lines

_HEAD = """\
# From {file}: {tasks} requests, with the calls that were made for them.
# What an agent did is not what it should have done: read every line, and correct it.
"""
_OTHERS = {
    "resourceSpans": "an OpenTelemetry export",
    "traceId": "an OpenTelemetry export",
    "run_type": "a LangSmith export",
    "child_runs": "a LangSmith export",
}


@dataclass
class FromLogs:
    """What was found in logs.

    Attributes:
        text: The tasks file.
        tasks: Lines that it holds.
        skipped: Conversations that became no line, by why.
    """

    text: str
    tasks: int = 0
    skipped: dict[str, int] = field(default_factory=dict)


def from_logs(path: Path) -> FromLogs:
    """Read OpenAI-shaped messages: JSON Lines of ``{"messages": […]}``.

    A conversation's first request becomes a task; the tool calls until the user says
    more, with the tools' results, are what is expected, unless a result is an error.

    Raises:
        UsageError: The file cannot be read, is of another kind, or has no such call.
    """
    found: list[dict[str, Any]] = []
    seen: set[str] = set()
    made = FromLogs("")

    def skip(why: str) -> None:
        made.skipped[why] = made.skipped.get(why, 0) + 1

    for number, text in numbered_lines(path):
        messages = _messages(path, number, text)
        try:
            line = _task(messages)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise UsageError(
                f"{path}, line {number}: the messages are not OpenAI-shaped "
                f"({type(error).__name__}: {error})."
            ) from None
        if line is None:
            skip("no tool was called for the first request")
        elif line["instruction"] in seen:
            skip("the same request came before")
        else:
            seen.add(line["instruction"])
            found.append(line)
    if not found:
        why = "; ".join(f"{n}: {w}" for w, n in made.skipped.items())
        why = why or "it is empty"
        raise UsageError(f"{path} has no request with a tool call: {why}.")
    body = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in found)
    made.text = _HEAD.format(file=path.name, tasks=len(found)) + body
    made.tasks = len(found)
    return made


def _messages(path: Path, number: int, text: str) -> list[dict[str, Any]]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(
            f"{path}, line {number}, is no JSON. Give JSON Lines: a conversation "
            '{"messages": […]} a line.'
        ) from None
    if isinstance(value, dict):
        messages = value.get("messages")
        if isinstance(messages, list) and all(isinstance(m, dict) for m in messages):
            return messages
        for key, kind in _OTHERS.items():
            if key in value:
                raise UsageError(
                    f"{path} is {kind}, which cannot be read yet. Write its messages "
                    'as JSON Lines, {"messages": […]} a line.'
                )
    raise UsageError(
        f'{path}, line {number}, has no list "messages" of OpenAI-shaped messages.'
    )


def _task(messages: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the line of a conversation; None if no call answers its first request."""
    roles = [message.get("role") for message in messages]
    if "user" not in roles:
        return None
    start = roles.index("user")
    end = roles.index("user", start + 1) if "user" in roles[start + 1 :] else None
    instruction = _text(messages[start].get("content")).strip()
    turn = messages[start + 1 : end]
    results = {
        message["tool_call_id"]: _text(message.get("content"))
        for message in turn
        if message.get("role") == "tool" and "tool_call_id" in message
    }
    expect = [call for message in turn for call in _calls(message, results)]
    if not instruction or not expect:
        return None
    return {"instruction": instruction, "expect": expect}


def _calls(
    message: dict[str, Any], results: dict[str, str]
) -> Iterator[dict[str, Any]]:
    for call in message.get("tool_calls") or []:
        function = call["function"]
        args = function.get("arguments") or "{}"
        parsed = parse_arguments(args) if isinstance(args, str) else args
        result = results.get(call.get("id", ""))
        failed = result is not None and result.lower().startswith("error")
        if parsed is None or failed:
            continue
        made = {"tool": str(function["name"]), "args": parsed}
        yield made if result is None else {**made, "answer": result}


def _text(content: Any) -> str:
    if content is None:
        return ""
    return joined_text(content) if isinstance(content, list) else str(content)
