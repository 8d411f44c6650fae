"""The coding team as a LangGraph graph, written as a user's own graph.

A supervisor routes between generator, reviewer and executor::

    graph = build_team(models=model, tools=tools)
    state = await graph.ainvoke({"messages": [("user", "Write a function that …")]})

This file imports no other part of AgentGym than ``routing``. The graph acts through its
tools: those of :class:`agentgym.plugins.team.coding_team.environment.TeamEnvironment`,
or others with the same names.
"""

import asyncio
import json
import operator
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple, TypedDict, cast

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, interrupt

from agentgym.plugins.team.coding_team.routing import (
    EXECUTOR,
    FINISH,
    GENERATOR,
    REVIEWER,
    Choice,
    changed_files,
    describe,
    is_risky,
    next_roles,
)

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
_MOST_SHOWN = 6
_MOST_EARLIER = 3
TURN_S = 600.0
"""Time limit in seconds for one attempt of a model."""

_STEPS = 40
_REFUSED = frozenset({401, 403, 404})
"""HTTP statuses for which a retry is useless."""
_DEEPEST = 10
_CODE = re.compile(r"```[\w+-]*\n(.*?)```", re.DOTALL)
_MOST_SAID = 2_000
_AGAIN = "Your last attempt could not be used: {problem} Use your tools."


_UNUSABLE = {
    GENERATOR: "no file was written.",
    REVIEWER: "not every changed file was checked.",
    EXECUTOR: "the tests were not run.",
}


class Turn(TypedDict):
    """One turn of a role, as an entry of the history.

    Attributes:
        role: Name of the role, or ``person``.
        did: The result of the turn in a few words.
        said: The role's last message, or the person's answer; maybe empty.
    """

    role: str
    round: int
    did: str
    said: str


class TeamState(TypedDict, total=False):
    """The state of the team's graph, shared by all roles.

    Attributes:
        findings: Problems found in the files, each until its file is edited: ``path``,
            ``line``, ``severity`` (``high``, ``medium``, ``low``) and ``message``.
        tests: ``passed``, ``failed`` and ``failures`` since the last edit; None until a
            test has failed or all have run.
        facts: Facts that decide the next role; see ``routing.next_roles``.
        note: Advice for the next role, from the supervisor, the executor or a person.
        question: The question that a person has to answer now, or None.
        outcome: Set at the end: ``passed``, ``failed``, ``untested``, or ``stopped`` if
            a person stopped the work.
    """

    messages: Annotated[list[AnyMessage], add_messages]
    problem: str
    files: dict[str, str]
    findings: list[dict[str, Any]]
    tests: dict[str, Any] | None
    history: Annotated[list[Turn], operator.add]
    facts: dict[str, Any]
    note: str
    question: dict[str, Any] | None
    outcome: str


Tools = Mapping[str, BaseTool]


async def record(tools: Tools, event: str = "look", role: str = "") -> dict[str, Any]:
    """Report an event to the tool ``team_state``; return the state of the work."""
    text = await tools["team_state"].ainvoke({"event": event, "role": role})
    state: dict[str, Any] = json.loads(text)
    return state


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


def shown(finding: Mapping[str, Any]) -> str:
    """Return a finding as ``path:line: message``."""
    return f"{finding['path']}:{finding['line']}: {finding['message']}"


class TurnResult(NamedTuple):
    """The result of a turn.

    Attributes:
        work: The state of the work after the turn, as :func:`record` returns it.
        problem: Why the models' work could not be used; empty if it was used.
    """

    work: dict[str, Any]
    said: str
    problem: str = ""


async def take_turn(
    role: str,
    agents: Sequence[Any],
    tools: Tools,
    brief: str,
    before: Mapping[str, Any],
) -> TurnResult:
    """Ask a role's agents until one does usable work, else work without a model."""
    problem, said = "", ""

    async def ask(agent: Any) -> tuple[str, str]:
        again = f"\n{_AGAIN.format(problem=problem)}" if problem else ""
        return await _asked(agent, brief + again)

    async for said, problem in answers(agents, ask):
        work = await record(tools)
        if _is_usable(role, before, work):
            return TurnResult(work, said)
        if role == GENERATOR and await _keep_code(tools, said, before):
            return TurnResult(await record(tools), said)
        problem = problem or _UNUSABLE[role]
    if agents:
        await record(tools, "fall_back", role)
        await _stand_in(role, tools, before)
    return TurnResult(await record(tools), said, problem)


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


async def _keep_code(tools: Tools, said: str, before: Mapping[str, Any]) -> bool:
    """Write the code block of an answer to the target file, if there is exactly one."""
    blocks = _CODE.findall(said)
    if len(blocks) != 1 or not blocks[0].strip():
        return False
    given = {"path": before["facts"]["target"], "text": blocks[0]}
    await tools["write_file"].ainvoke(given)
    return True


async def _stand_in(role: str, tools: Tools, before: Mapping[str, Any]) -> None:
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


YES: Final = "yes"
NO: Final = "no"
MOST_ASKED = 3
"""Number of times a question is asked before it counts as ``no``."""

_YES = frozenset({"y", "yes", "ok", "okay", "true", "approve", "accept", "go on"})
_NO = frozenset({"n", "no", "stop", "false", "reject", "quit", "exit"})
_LEAST_WORDS = 2


def understood(answer: Any) -> str | None:
    """Parse a person's answer into ``yes``, ``no``, or the text of an instruction.

    None means that the person has left, and counts as ``no``; so does ``{"answer":
    None}``, since LangGraph does not always allow None.
    """
    if isinstance(answer, Mapping):
        answer = answer.get("answer", "")
    if answer is None:
        return NO
    if isinstance(answer, bool):
        return YES if answer else NO
    if not isinstance(answer, str):
        return None
    text = answer.strip()
    word = text.lower().rstrip(".!")
    if word in _YES:
        return YES
    if word in _NO:
        return NO
    return text if len(text.split()) >= _LEAST_WORDS else None


def about_edit(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, Any]:
    """Return the question whether the person wants to keep a risky edit."""
    changed = changed_files(before, after)
    return {
        "kind": "risky_edit",
        "text": f"Keep this change of {', '.join(changed)}? It deletes a file, changes "
        "one that you gave, or acts on the machine. Answer yes, no, or what to do "
        "instead.",
        "files": {path: after.get(path) for path in changed},
    }


def about_deadlock() -> dict[str, Any]:
    """Return the question whether to go on after the generator repeated bad code."""
    return {
        "kind": "deadlock",
        "text": "The generator wrote the same code again, and it has failed already. "
        "Answer yes to go on, no to stop, or what to do instead.",
    }


def about_rounds(rounds: int) -> dict[str, Any]:
    """Return the question whether to go on after ``rounds`` failed rounds."""
    return {
        "kind": "failed_rounds",
        "text": f"{rounds} rounds have not solved it. Answer yes for as many more, no "
        "to stop, or what to do instead.",
    }


ROLES = ("supervisor", GENERATOR, REVIEWER, EXECUTOR)
"""Names of the roles: keys of ``models``, and the agents' names in LangChain."""
Models = BaseChatModel | Mapping[str, BaseChatModel]

_TRIES = 2


def make_team(
    llm: BaseChatModel, tools: Sequence[BaseTool]
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return the team's compiled graph, with ``llm`` as the model of all roles."""
    return build_team(llm, tools)


def build_team(
    models: Models,
    tools: Sequence[BaseTool],
    *,
    fallback: BaseChatModel | None = None,
    human: bool = False,
    checkpointer: Any = None,
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Build the team's compiled graph."""
    box = {tool.name: tool for tool in tools}
    for name in ("hand_over", "team_state"):
        if name not in box:
            raise ValueError(f"The team needs a tool named {name!r}.")
    by_role = {role: [_model_of(models, role)] for role in ROLES}
    if fallback is not None:
        for answering in by_role.values():
            answering.append(fallback)
    builder = StateGraph(TeamState)
    asks = ("person",) if human else ()
    lead = _supervisor(by_role["supervisor"], box, human)
    # LangChain's name of an agent, as `create_agent` gives it to the other roles. If it
    # were missing, a team inside another graph would name the outer node instead.
    named = {"lc_agent_name": "supervisor"}
    leads_to = (*ROLES[1:], *asks, END)
    builder.add_node("supervisor", lead, metadata=named, destinations=leads_to)
    for name in ROLES[1:]:
        node = _role(name, _agents(name, by_role[name], box), box, human)
        builder.add_node(name, node, destinations=("supervisor", *asks))
    if human:
        ends = ("supervisor", END)
        builder.add_node("person", _person(box), destinations=ends)
    builder.add_edge(START, "supervisor")
    return builder.compile(checkpointer=checkpointer, name="coding_team")


def _model_of(models: Models, role: str) -> BaseChatModel:
    if isinstance(models, BaseChatModel):
        return models
    found = models.get(role, models.get("default"))
    if found is None:
        raise ValueError(f"The role {role!r} has no model, and there is no default.")
    return found


def _agents(role: str, models: Sequence[BaseChatModel], tools: Tools) -> list[Any]:
    """Return a compiled agent of a role for each model."""
    # Without write_file, another program writes the code.
    if role == GENERATOR and "write_file" not in tools:
        return []
    own = [tools[name] for name in ROLE_TOOLS[role] if name in tools]
    prompt = ROLE_PROMPTS[role]
    return [create_agent(m, own, system_prompt=prompt, name=role) for m in models]


def _supervisor(models: list[BaseChatModel], tools: Tools, human: bool) -> Any:
    hand_over = tools["hand_over"]
    offered = [model.bind_tools([hand_over]) for model in models]

    async def supervisor(state: TeamState) -> Command[Any]:
        """Let the model choose the next role, or choose by rule if it fails to."""
        known = _known(state, await record(tools))
        asked = SystemMessage(SUPERVISOR_PROMPT), HumanMessage(supervisor_brief(known))
        choice, note, by_rule = None, "", ""

        async def ask(model: Any) -> tuple[Choice | None, str]:
            return await _chosen(model, list(asked), hand_over, known["facts"])

        async for choice, note in answers(offered, ask):  # noqa: B007 - used below
            if choice is not None:
                break
        if choice is None:
            choice = next_roles(known["facts"])[0]
            await record(tools, "fall_back", "supervisor")
            await record(tools, "hand_over", choice)
            by_rule = " by rule"
        update = {**known, "history": [_turn(known, "supervisor", choice + by_rule)]}
        update |= {"note": note or known.get("note", "")}
        if choice != FINISH:
            return Command(goto=choice, update=update)
        outcome = _outcome(known)
        if human and outcome == "failed":
            question = about_rounds(known["facts"]["rounds"])
            return Command(goto="person", update={**update, "question": question})
        return Command(goto=END, update={**update, **_end(known, outcome)})

    return supervisor


async def _chosen(
    model: Any, messages: list[Any], hand_over: BaseTool, facts: Mapping[str, Any]
) -> tuple[Choice | None, str]:
    """Ask a model for the next role and a note.

    None if ``routing`` does not allow it.
    """
    for _ in range(_TRIES):
        try:
            async with asyncio.timeout(TURN_S):
                answer = await model.ainvoke(messages)
            if not answer.tool_calls:
                return None, ""
            call = answer.tool_calls[0]
            result = await hand_over.ainvoke(call)
        except GraphBubbleUp:
            raise
        except Exception as error:
            if is_final(error):
                raise
            return None, ""
        choice = call["args"].get("to")
        if not result.text.startswith("Error") and choice in next_roles(facts):
            return cast(Choice, choice), str(call["args"].get("note") or "")
        messages += [answer, result]
        if len(answer.tool_calls) > 1:
            return None, ""
    return None, ""


def _role(name: str, agents: list[Any], tools: Tools, human: bool) -> Any:
    async def node(state: TeamState) -> Command[Any]:
        """Run one turn of the role, then go to the supervisor or to a person."""
        before = {key: state.get(key) for key in ("files", "facts", "tests")}
        brief = role_brief(name, state)
        made = await take_turn(name, agents, tools, brief, before)
        known = _known(state, made.work)
        update = {**known, "history": [_turn(known, name, _did(name, made), made.said)]}
        update["note"] = made.said if name == EXECUTOR else ""
        question = _question(state, made.work) if name == GENERATOR and human else None
        if question is not None:
            return Command(goto="person", update={**update, "question": question})
        return Command(goto="supervisor", update=update)

    return node


def _question(state: TeamState, work: Mapping[str, Any]) -> dict[str, Any] | None:
    before, after = state["files"], work["files"]
    given = work["facts"]["given"]
    touches = any(before.get(path) != after.get(path) for path in given)
    if touches or is_risky(before, after):
        return about_edit(before, after)
    return about_deadlock() if work["facts"]["repeated"] else None


def _person(tools: Tools) -> Any:
    async def person(state: TeamState) -> Command[Any]:
        """Ask the person, then act on the answer."""
        # LangGraph runs this node again from its start after the answer.
        question = state["question"] or {}
        answer = None
        for number in range(MOST_ASKED):
            answer = understood(interrupt({**question, "asked_again": number > 0}))
            if answer is not None:
                break
        answer = answer or NO
        kind = question.get("kind", "")
        is_words = answer not in (YES, NO)
        work = await record(tools)
        if kind == "risky_edit" and answer != YES:
            work = await record(tools, "take_back")
        elif kind == "failed_rounds" and answer != NO:
            work = await record(tools, "more_rounds")
        known = _known(state, work)
        update = {
            **known,
            "question": None,
            "note": answer if is_words else "",
            "history": [_turn(known, "person", kind.replace("_", " "), answer)],
        }
        if answer == NO and kind == "risky_edit":
            update["note"] = "A person rejected the last change: find another way."
        if answer == NO and kind != "risky_edit":
            outcome = "failed" if _outcome(known) == "failed" else "stopped"
            return Command(goto=END, update={**update, **_end(known, outcome)})
        return Command(goto="supervisor", update=update)

    return person


def _known(state: TeamState, work: Mapping[str, Any]) -> TeamState:
    """Return a state update with the last request and the state of the work."""
    problem = state.get("problem") or ""
    asked = [m.text for m in state.get("messages", ()) if m.type == "human"]
    if asked:
        problem = str(asked[-1])
    return {
        "problem": problem,
        "files": work["files"],
        "findings": work["findings"],
        "tests": work["tests"],
        "facts": work["facts"],
        "note": state.get("note", ""),
    }


def _turn(state: TeamState, role: str, did: str, said: str = "") -> Turn:
    return Turn(role=role, round=state["facts"]["rounds"], did=did, said=said)


def _did(role: str, made: TurnResult) -> str:
    """Describe the result of a turn in a few words, for the history."""
    if made.problem:
        return f"could not be used: {made.problem}"
    if role == GENERATOR:
        return f"changed {', '.join(made.work['facts']['changed']) or 'nothing'}"
    if role == REVIEWER:
        found = made.work["findings"]
        return f"{len(found)} findings, {made.work['facts']['serious']} serious"
    tests = made.work["tests"]
    return f"{tests['passed']} tests passed, {tests['failed']} failed"


def _outcome(state: TeamState) -> str:
    tests = state.get("tests")
    if tests and tests["failed"]:
        return "failed"
    if state["facts"]["serious"] or not state["facts"]["written"]:
        return "failed"
    return "passed" if tests and tests["passed"] else "untested"


def _end(state: TeamState, outcome: str) -> dict[str, Any]:
    """Return the state update that ends a request: last message and outcome."""
    changed = ", ".join(state["facts"]["changed"]) or "nothing"
    tests = state.get("tests") or {"passed": 0, "failed": 0}
    text = (
        f"{outcome.capitalize()}: changed {changed}; {tests['passed']} tests passed, "
        f"{tests['failed']} failed; {len(state['findings'])} findings."
    )
    return {"messages": [AIMessage(text)], "outcome": outcome}
