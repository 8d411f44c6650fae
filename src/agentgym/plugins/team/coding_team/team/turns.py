"""Run one turn of a role: ask its models, then replace them if they all fail."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp

from agentgym.plugins.team.coding_team.team.routing import (
    EXECUTOR,
    GENERATOR,
    REVIEWER,
    describe,
)
from agentgym.plugins.team.coding_team.team.state import ReviewFinding, TeamState

SUPERVISOR_PROMPT = (
    "You lead a coding team. Read the facts and hand over to one role: generator "
    "writes code, reviewer checks long or risky code, executor runs tests, finish ends "
    "the work. Failed tests and serious findings go to the generator."
)
ROLE_PROMPTS = {
    GENERATOR: (
        "You write code in a small project. Read the files you need, write or edit "
        "files with your tools, then answer in one sentence. Do not change tests that "
        "you were given."
    ),
    REVIEWER: (
        "You review code. Check each changed file with your tools, report problems "
        "that they cannot see, then answer in a few words. Do not change files."
    ),
    EXECUTOR: (
        "You test code. Run the tests with your tools; write tests if there are none. "
        "Then name the failure and its cause in a few words. Do not change the code."
    ),
}
_MOST_SHOWN = 6
_MOST_EARLIER = 3


def supervisor_brief(state: TeamState) -> str:
    """Return the message that asks the supervisor to choose the next role."""
    note = f"\nNote: {state['note']}" if state.get("note") else ""
    return f"Request: {state['problem']}\n{describe(state['facts'])}{note}"


def role_brief(role: str, state: TeamState) -> str:
    """Return the message that asks a generator, reviewer or executor to work."""
    changed = ", ".join(state["facts"].get("changed", ())) or "none"
    if role == REVIEWER:
        return f"Request: {state['problem']}\nReview: {changed}"
    if role == EXECUTOR:
        tests = ", ".join(state["facts"].get("test_files", ())) or "none"
        return f"Request: {state['problem']}\nChanged: {changed}\nTests: {tests}"
    asked = [str(m.text) for m in state.get("messages", ()) if m.type == "human"]
    lines = [f"Earlier request: {text}" for text in asked[:-1][-_MOST_EARLIER:]]
    lines.append(f"Request: {state['problem']}")
    if state["files"]:
        lines.append(f"Files: {', '.join(sorted(state['files']))}")
    for failure in (state.get("tests") or {"failures": []})["failures"][:_MOST_SHOWN]:
        lines.append(f"Failed test: {failure}")
    serious = [f for f in state.get("findings", ()) if f["severity"] == "high"]
    lines += [f"Finding: {shown(finding)}" for finding in serious[:_MOST_SHOWN]]
    if state.get("note"):
        lines.append(f"Note: {state['note']}")
    return "\n".join(lines)


def shown(finding: ReviewFinding) -> str:
    """Return a finding as ``path:line: message``."""
    return f"{finding['path']}:{finding['line']}: {finding['message']}"


ROLE_TOOLS: Mapping[str, tuple[str, ...]] = {
    GENERATOR: ("list_files", "read_file", "write_file", "edit_file"),
    REVIEWER: (
        "read_file",
        "lint",
        "check_security",
        "check_complexity",
        "report_finding",
    ),
    EXECUTOR: ("read_file", "run_tests", "write_test", "measure"),
}
"""Names of the tools of each role; those that a team does not have are left out."""
TURN_S = 600.0
"""Time limit in seconds for one attempt of a model."""

_STEPS = 40
_REFUSED = frozenset({401, 403, 404})
"""HTTP statuses for which a retry is useless."""
_DEEPEST = 10
_CODE = re.compile(r"```[\w+-]*\n(.*?)```", re.DOTALL)
_MOST_SAID = 2_000
_AGAIN = "Your last attempt could not be used: {problem} Use your tools."


class TeamTools:
    """All tools of a team, by name."""

    def __init__(self, tools: Sequence[BaseTool]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        for name in ("hand_over", "team_state"):
            if name not in self._tools:
                raise ValueError(f"The team needs a tool named {name!r}.")

    def __contains__(self, name: str) -> bool:
        return name in self._tools

    def __getitem__(self, name: str) -> BaseTool:
        return self._tools[name]

    def of_role(self, role: str) -> list[BaseTool]:
        """Return the tools of a role, as far as the team has them."""
        return [self._tools[n] for n in ROLE_TOOLS[role] if n in self._tools]

    async def record(self, event: str = "look", role: str = "") -> dict[str, Any]:
        """Report an event to the tool ``team_state``; return the state of the work."""
        text = await self._tools["team_state"].ainvoke({"event": event, "role": role})
        state: dict[str, Any] = json.loads(text)
        return state


_UNUSABLE = {
    GENERATOR: "no file was written.",
    REVIEWER: "not every changed file was checked.",
    EXECUTOR: "the tests were not run.",
}


@dataclass(frozen=True)
class TurnResult:
    """The result of a turn.

    Attributes:
        work: The state of the work after the turn, as :meth:`TeamTools.record` returns
            it.
        problem: Why the models' work could not be used; empty if it was used.
    """

    work: dict[str, Any]
    said: str
    problem: str = ""


def agents_of(
    role: str, models: Sequence[BaseChatModel], tools: TeamTools
) -> list[Any]:
    """Return a compiled agent of a role for each model."""
    # Without write_file, another program writes the code.
    if role == GENERATOR and "write_file" not in tools:
        return []
    own, prompt = tools.of_role(role), ROLE_PROMPTS[role]
    return [create_agent(m, own, system_prompt=prompt, name=role) for m in models]


async def take_turn(
    role: str,
    agents: Sequence[Any],
    tools: TeamTools,
    brief: str,
    before: Mapping[str, Any],
) -> TurnResult:
    """Ask a role's agents until one does usable work, else work without a model."""
    problem, said = "", ""

    async def ask(agent: Any) -> tuple[str, str]:
        again = f"\n{_AGAIN.format(problem=problem)}" if problem else ""
        return await _asked(agent, brief + again)

    async for said, problem in answers(agents, ask):
        work = await tools.record()
        if _is_usable(role, before, work):
            return TurnResult(work, said)
        if role == GENERATOR and await _keep_code(tools, said, before):
            return TurnResult(await tools.record(), said)
        problem = problem or _UNUSABLE[role]
    if agents:
        await tools.record("fall_back", role)
        await _stand_in(role, tools, before)
    return TurnResult(await tools.record(), said, problem)


async def answers[M, A](
    models: Sequence[M], ask: Callable[[M], Awaitable[A]]
) -> AsyncIterator[A]:
    """Ask models one after the other, the first one twice; yield each answer."""
    gone = None
    for model in (*models[:1], *models):
        if model is gone:
            continue
        try:
            answer = await ask(model)
        except Exception as error:
            if model is models[-1] or not is_unreachable(error):
                raise
            gone = model
        else:
            yield answer


def is_final(error: BaseException) -> bool:
    """Return whether an error shows that a second request would fail too."""
    return getattr(error, "status_code", None) in _REFUSED or is_unreachable(error)


def is_unreachable(error: BaseException | None, depth: int = 0) -> bool:
    """Return whether an error was caused by a server that is not running."""
    # A server that is starting or overloaded answers with an HTTP status instead.
    if error is None or depth > _DEEPEST:
        return False
    if isinstance(error, BaseExceptionGroup):  # one per address of a host
        return all(is_unreachable(each, depth + 1) for each in error.exceptions)
    if isinstance(error, ConnectionRefusedError):
        return True
    return is_unreachable(error.__cause__ or error.__context__, depth + 1)


def _is_usable(role: str, before: Mapping[str, Any], work: Mapping[str, Any]) -> bool:
    if role == GENERATOR:
        return bool(work["files"] != before["files"])
    if role == REVIEWER:
        return bool(work["facts"]["reviewed"])
    return work["tests"] is not None


async def _keep_code(tools: TeamTools, said: str, before: Mapping[str, Any]) -> bool:
    """Write the code block of an answer to the target file, if there is exactly one."""
    blocks = _CODE.findall(said)
    if len(blocks) != 1 or not blocks[0].strip():
        return False
    given = {"path": before["facts"]["target"], "text": blocks[0]}
    await tools["write_file"].ainvoke(given)
    return True


async def _stand_in(role: str, tools: TeamTools, before: Mapping[str, Any]) -> None:
    """Run the checks for a reviewer, or the tests for an executor, without a model."""
    if role == EXECUTOR:
        await tools["run_tests"].ainvoke({})
    if role != REVIEWER:
        return
    for path in before["facts"]["changed"]:
        for name in ("lint", "check_security", "check_complexity"):
            if name in tools:
                await tools[name].ainvoke({"path": path})


async def _asked(agent: Any, brief: str) -> tuple[str, str]:
    """Run an agent; return its last message, and the error as text (else "")."""
    given = {"messages": [HumanMessage(brief)]}
    try:
        async with asyncio.timeout(TURN_S):
            state = await agent.ainvoke(given, {"recursion_limit": _STEPS})
    except GraphBubbleUp:
        raise
    except Exception as error:
        if is_final(error):
            raise
        return "", f"it failed with {type(error).__name__}: {error}"[:300]
    return str(state["messages"][-1].text)[:_MOST_SAID], ""
