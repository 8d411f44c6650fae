"""Write a run's events to ``progress.jsonl``, and pass them to an observer elsewhere.

If the run asks the user a question, this is also a line. The answer arrives in a file.
"""

import json
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from agentgym.core.files import parse_json
from agentgym.evaluate import events
from agentgym.rollout.inspection import AgentReport
from agentgym.security.redaction import Redactor

_LOOK_S = 0.1
_ANSWERED = "answered"


def event_to_json(event: events.Event) -> dict[str, Any]:
    """Convert an event to a line of ``progress.jsonl``: its class name and fields."""
    name = type(event).__name__
    return {"event": name, **_adapter(name).dump_python(event, mode="json")}


def event_from_json(line: dict[str, Any]) -> events.Event:
    """Convert a line of ``progress.jsonl`` to the event."""
    fields = {name: value for name, value in line.items() if name != "event"}
    event: events.Event = _adapter(line["event"]).validate_python(fields)
    return event


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    adapter = TypeAdapter[Any](getattr(events, name))
    adapter.rebuild(_types_namespace={"AgentReport": AgentReport})
    return adapter


class ProgressWriter:
    """Writes a remote run's events to a file; waits for the answer to a question."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._asked = 0
        self._file = (folder / "progress.jsonl").open("a", buffering=1)

    def __call__(self, event: events.Event) -> bool | None:
        """Write an event; return the answer to a question, None if no user gives it."""
        if not isinstance(event, events.Question):
            self._write(event_to_json(event))
            return None
        self._asked += 1
        answer = self._folder / f"reply-{self._asked}.json"
        self._write(event_to_json(event) | {"number": self._asked})
        while not answer.exists():
            time.sleep(_LOOK_S)
        value: bool | None = parse_json(answer.read_text(encoding="utf-8"))
        self._write({"event": _ANSWERED, "number": self._asked})
        return value

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(Redactor.of_environment().written(json.dumps(line)) + "\n")


def replay_progress(
    lines: str,
    progress: events.Observer,
    adapted: Callable[[events.Plan], events.Plan],
    reply: Callable[[int, Any], None],
) -> bool:
    """Pass the events that a remote run wrote to ``progress``.

    Return whether one of them says that the run has new files.
    """
    found = [parse_json(line) for line in lines.splitlines()]
    answered = {line["number"] for line in found if line["event"] == _ANSWERED}
    has_made = False
    for line in found:
        number = line.pop("number", None)
        if number in answered:
            continue
        event = event_from_json(line)
        if isinstance(event, events.Plan):
            event = adapted(event)
        answer = progress(event)
        if number is not None:
            reply(number, answer)
        has_made |= isinstance(
            event,
            events.StepReport
            | events.BaselineMeasured
            | events.WarmStartDone
            | events.Ended,
        )
    return has_made
