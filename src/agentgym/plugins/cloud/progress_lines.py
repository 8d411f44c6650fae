"""Write a run's progress events as JSON lines, and replay them on the client.

If the run asks the user a question, this is also a line. The answer arrives in a file.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from agentgym.core.files import parse_json
from agentgym.core.ledger import Ledger
from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.progress import Plan, Progress, StepReport
from agentgym.rollout.inspection import AgentReport
from agentgym.security.redaction import Redactor

_PLAN, _STEP = TypeAdapter(Plan), TypeAdapter(StepReport)
_PLAN.rebuild(_types_namespace={"AgentReport": AgentReport})
_METRICS, _LEDGER = TypeAdapter(Metrics), TypeAdapter(Ledger)
_KINDS: dict[str, dict[int, TypeAdapter[Any]]] = {
    "planned": {0: _PLAN},
    "baseline": {0: _METRICS},
    "warmed": {1: _METRICS},
    "stepped": {0: _STEP},
    "validated": {1: _METRICS},
    "ended": {1: _LEDGER},
}
"""Types of the arguments that JSON cannot hold as they are, by method and position."""
QUESTIONS = ("wants_warm_start", "allows", "may_run")
_BEFORE = ("may_rent", "may_spend")
"""Questions that are asked before the run is sent to the machine."""
_LOOK_S = 0.1


class ProgressWriter(Progress):
    """Writes a remote run's progress events to a file, one per line.

    A method that asks the user a question waits for the answer. It returns None if no
    user can answer.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._asked = 0
        self._file = (folder / "progress.jsonl").open("a", buffering=1)

    def _write(self, method: str, *args: Any, **more: Any) -> None:
        kinds = _KINDS.get(method, {})
        plain = [
            kinds[place].dump_python(value, mode="json") if place in kinds else value
            for place, value in enumerate(args)
        ]
        line = json.dumps({"method": method, "args": plain, **more})
        self._file.write(Redactor.of_environment().written(line) + "\n")

    def _ask(self, method: str, *args: Any) -> Any:
        self._asked += 1
        answer = self._folder / f"reply-{self._asked}.json"
        self._write(method, *args, number=self._asked)
        while not answer.exists():
            time.sleep(_LOOK_S)
        value = parse_json(answer.read_text(encoding="utf-8"))
        self._write("answered", self._asked)
        return value


def _sender(method: str) -> Callable[..., Any]:
    """Return the implementation of a method of ProgressWriter, by the method's name.

    It writes an event. If ``method`` is in :data:`QUESTIONS`, it also waits for the
    user's answer, and returns this answer.
    """

    def send(self: ProgressWriter, *args: Any) -> Any:
        write = self._ask if method in QUESTIONS else self._write
        return write(method, *args)

    return send


for _method in vars(Progress):
    if not _method.startswith("_") and _method not in _BEFORE:
        setattr(ProgressWriter, _method, _sender(_method))


def replay_progress(
    lines: bytes,
    progress: Progress,
    adapted: Callable[[Plan], Plan],
    reply: Callable[[int, Any], None],
) -> bool:
    """Call the methods of ``progress`` for the events that a remote run wrote."""
    events = [parse_json(line) for line in lines.splitlines()]
    answered = {event["args"][0] for event in events if event["method"] == "answered"}
    has_made = False
    for event in events:
        method, args = event["method"], event["args"]
        for place, kind in _KINDS.get(method, {}).items():
            args[place] = kind.validate_python(args[place])
        if method == "planned":
            args = [adapted(args[0])]
        if method in QUESTIONS and event["number"] not in answered:
            reply(event["number"], getattr(progress, method)(*args))
        elif method not in (*QUESTIONS, "answered"):
            getattr(progress, method)(*args)
        has_made |= method in ("stepped", "baseline", "warmed", "ended")
    return has_made
