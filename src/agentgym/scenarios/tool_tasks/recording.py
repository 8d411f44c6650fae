"""Call tools once, and record their real answers in a file next to the tasks file."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentgym.core.background import in_background
from agentgym.core.files import write_atomically
from agentgym.core.needs import NeededCall
from agentgym.core.tools import Tool
from agentgym.core.trajectory import ToolCall
from agentgym.errors import NotFoundError, ToolError, UsageError
from agentgym.scenarios.tool_tasks.answers import run_live
from agentgym.scenarios.tool_tasks.task_file import (
    Answer,
    answers_path,
    read_answers,
    read_task_lines,
)


@dataclass
class Recording:
    """The calls of a tasks file whose answers are to be recorded.

    Attributes:
        known: Answers that are recorded, also those from :meth:`run`.
        failed: A message for each call that failed in :meth:`run`.
    """

    path: Path
    calls: list[NeededCall]
    tools: dict[str, Tool]
    known: list[Answer]
    failed: list[str] = field(default_factory=list)

    @classmethod
    def plan(
        cls, tasks: Path, tools: Sequence[Tool], allow: Sequence[str]
    ) -> "Recording":
        """Find the expected calls without a recorded answer, but do not make them."""
        by_name = {tool.spec.name: tool for tool in tools}
        specs = {name: tool.spec for name, tool in by_name.items()}
        lines = read_task_lines(tasks, specs, checked=True)
        for name in allow:
            if name not in specs:
                raise NotFoundError("tool", name, specs)
        if not allow:
            raise UsageError(
                "Recording really calls tools. Allow those that do no harm when they "
                f"are: --allow-tool NAME, of {', '.join(specs)}."
            )
        path = answers_path(tasks)
        known = read_answers(path, specs)
        calls: list[NeededCall] = []
        for line in lines:
            for need in () if line.tools else line.expect:
                for call in (need, *need.instead):
                    made = ToolCall(name=call.tool, arguments=dict(call.arguments))
                    spec = specs[call.tool]
                    answered = [a.call for a in (*line.answers, *known)] + calls
                    done = any(a.accepts(made, spec, succeeded=True) for a in answered)
                    if call.tool in allow and not call.by_outcome and not done:
                        calls.append(NeededCall(call.tool, call.arguments))
        return cls(path, calls, by_name, known)

    def run(self) -> int:
        """Make the calls and write the answers; return the number of new answers."""
        # Answers to earlier calls are written even if the user interrupts a call.
        before = len(self.known)
        try:
            for call in self.calls:
                tool = self.tools[call.tool]
                try:
                    text = in_background(run_live(tool, dict(call.arguments)))
                except ToolError as error:
                    self.failed.append(f"{call.tool} {_json(call.arguments)}: {error}")
                else:
                    self.known.append(Answer(call, text))
        finally:
            if len(self.known) > before:
                lines = [
                    _json({"tool": c.tool, "args": dict(c.arguments), "answer": text})
                    for c, text in ((each.call, each.text) for each in self.known)
                ]
                write_atomically(self.path, "\n".join(lines) + "\n", private=False)
        return len(self.known) - before


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
