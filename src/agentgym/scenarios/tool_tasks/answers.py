"""Answer tool calls in training, with recorded or made-up answers or real calls."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

from agentgym.core.background import call
from agentgym.core.needs import NeededCall
from agentgym.core.task import Answers
from agentgym.core.tools import Tool, result_text
from agentgym.core.trajectory import ToolCall
from agentgym.errors import RuleViolation, ToolError
from agentgym.scenarios.base import Environment
from agentgym.scenarios.tool_tasks.judging import folder_with
from agentgym.scenarios.tool_tasks.stubs import result_schema, stub_answer
from agentgym.scenarios.tool_tasks.task_file import Answer, TaskLine
from agentgym.scenarios.tool_tasks.unseen import UnseenSpec
from agentgym.scenarios.tool_tasks.user_code import unseen_tool


@dataclass(frozen=True)
class Answering:
    """The settings for answering the tool calls of a scenario.

    Attributes:
        tools: The tools with their functions; only those in ``allow`` ever run.
        mode: ``recorded`` (recorded answers), ``stub`` (made-up answers) or ``live``
            (the tools in ``allow`` run).
        allow: Names of the tools that really run if ``mode`` is ``live``.
        recorded: Recorded answers that apply to all tasks.
        is_open: Whether calls of other tools of the agent are answered, too.
        is_checked: Whether a function scores episodes, so that lines may name no calls.
    """

    tools: Sequence[Tool]
    mode: Answers
    allow: frozenset[str]
    recorded: Sequence[Answer]
    is_open: bool = False
    is_checked: bool = False

    def makes_up(self, line: TaskLine) -> bool:
        """Return whether calls that nothing is known about get made-up answers."""
        names_no_calls = not (line.expect or line.answers or self.recorded)
        return self.mode == "stub" or (self.is_checked and names_no_calls)

    def tools_of(self, line: TaskLine) -> Sequence[Tool]:
        """Return a line's own tools, which cannot really run, or those of the file."""
        if not line.tools:
            return self.tools
        return [Tool(spec, _no_function) for spec in line.tools.values()]


class ToolEnvironment(Environment):
    """The environment of one episode, for one line of a tasks file.

    ``missed`` counts the calls that failed because no answer was recorded. With
    ``needs_answer``, a program must print one.
    """

    def __init__(
        self,
        line: TaskLine,
        answering: Answering,
        base: Path | None = None,
        *,
        needs_answer: bool = True,
    ) -> None:
        self.missed = 0
        self.needs_answer = needs_answer
        self._ends: list[Callable[[], None]] = []
        self._base = base or Path()
        self._folder: Path | None = None
        self._line = line
        self._how = answering
        self._tools = {tool.spec.name: tool for tool in answering.tools_of(line)}
        self._given: set[int] = set()
        self._made: set[int] = set()

    def tools(self) -> list[Tool]:
        """Return the tools, whose calls this environment answers."""
        return [
            Tool(tool.spec, self._bound(tool), as_written=True)
            for tool in self._tools.values()
        ]

    def late_tool(self, name: str) -> Tool | None:
        """Return the tool that answers calls of an agent's own tool."""
        if not self._how.is_open or self._line.tools:
            return None
        tool = self._tools[name] = unseen_tool(UnseenSpec(name))
        return Tool(tool.spec, self._bound(tool), as_written=True)

    def folder(self) -> Path | None:
        """Return the episode's folder with the task's files; create it if needed."""
        if self._folder is None:
            self._folder = folder_with(self._line.files, self._base)
        return self._folder

    def at_close(self, end: Callable[[], None]) -> None:
        """Register a function that :meth:`close` calls before it deletes the folder."""
        self._ends.append(end)

    def close(self) -> None:
        """End the processes in the folder, then delete the folder."""
        for end in self._ends:
            end()
        if self._folder is not None:
            rmtree(self._folder, ignore_errors=True)

    def _bound(self, tool: Tool) -> Any:
        async def answer(**arguments: Any) -> str:
            return await self._answer(tool, arguments)

        return answer

    async def _answer(self, tool: Tool, arguments: dict[str, Any]) -> str:
        name = tool.spec.name
        if name in self._line.forbid:
            raise RuleViolation(f"{name} must not be called for this request.")
        how, has_own = self._how, bool(self._line.tools)
        if how.mode == "live" and name in how.allow and not has_own:
            return await run_live(tool, arguments)
        made = ToolCall(name=name, arguments=arguments)
        facts = self._facts(made)
        text = self._known(made)
        if text is not None:
            return text
        if facts is None and not how.makes_up(self._line):
            self.missed += 1
            raise ToolError(
                f"nothing is recorded for {name} with these arguments: "
                f"{result_text(arguments)}"
            )
        schema = None if has_own else result_schema(tool)
        read = tool.spec.validate(arguments)
        return stub_answer(name, schema, read, facts or {})

    def _known(self, made: ToolCall) -> str | None:
        """Return the next recorded answer to equal calls; None if none is recorded."""
        own = [n for n, a in enumerate(self._line.answers) if self._is(a.call, made)]
        if own:
            place = next((n for n in own if n not in self._given), own[-1])
            self._given.add(place)
            return self._line.answers[place].text
        every = (a.text for a in self._how.recorded if self._is(a.call, made))
        return next(every, None)

    def _facts(self, made: ToolCall) -> dict[str, Any] | None:
        """Return the values that the answer to an expected call must contain, by name.

        They are arguments of later expected calls that the request does not contain.
        """
        expect = self._line.expect
        places = [n for n, need in enumerate(expect) if self._is(need, made)]
        if not places:
            return None
        place = next((n for n in places if n not in self._made), places[-1])
        self._made.add(place)
        later = expect[place + 1 :] if self._line.ordered else ()
        said = self._line.instruction.lower()
        return {
            name: value
            for need in later
            for name, value in need.arguments.items()
            if name not in need.by_outcome
            and result_text(value).lower() not in said
            and value not in (made.arguments or {}).values()
        }

    def _is(self, need: NeededCall, made: ToolCall) -> bool:
        return need.accepts(made, self._tools[made.name].spec, succeeded=True)


def _no_function(**arguments: Any) -> str:
    raise AssertionError("a tool that is known by its schema alone never runs")


async def run_live(tool: Tool, arguments: dict[str, Any]) -> str:
    """Really call a tool's function, and return its result as text."""
    try:
        given = arguments if tool.as_written else tool.spec.validate(arguments)
        return result_text(await call(tool.function, **given))
    except ToolError:
        raise
    except Exception as error:
        raise ToolError(f"{type(error).__name__}: {error}") from error
