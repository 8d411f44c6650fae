"""The graph: a supervisor that routes between generator, reviewer and executor.

::

    graph = build_team(models=model, tools=tools)
    state = await graph.ainvoke({"messages": [("user", "Write a function that …")]})
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, interrupt

from agentgym.plugins.team.coding_team.team.routing import (
    EXECUTOR,
    FINISH,
    GENERATOR,
    REVIEWER,
    Choice,
    changed_files,
    is_risky,
    next_roles,
)
from agentgym.plugins.team.coding_team.team.state import TeamState, Turn
from agentgym.plugins.team.coding_team.team.turns import (
    SUPERVISOR_PROMPT,
    TURN_S,
    TeamTools,
    TurnResult,
    agents_of,
    answers,
    is_final,
    role_brief,
    supervisor_brief,
    take_turn,
)

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


def build_team(
    models: Models,
    tools: Sequence[BaseTool],
    *,
    fallback: BaseChatModel | None = None,
    human: bool = False,
    checkpointer: Any = None,
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Build the team's compiled graph."""
    box = TeamTools(tools)
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
        agents = agents_of(name, by_role[name], box)
        node = _role(name, agents, box, human)
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


def _supervisor(models: list[BaseChatModel], tools: TeamTools, human: bool) -> Any:
    hand_over = tools["hand_over"]
    offered = [model.bind_tools([hand_over]) for model in models]

    async def supervisor(state: TeamState) -> Command[Any]:
        """Let the model choose the next role, or choose by rule if it fails to."""
        known = _known(state, await tools.record())
        asked = SystemMessage(SUPERVISOR_PROMPT), HumanMessage(supervisor_brief(known))
        choice, note, by_rule = None, "", ""

        async def ask(model: Any) -> tuple[Choice | None, str]:
            return await _chosen(model, list(asked), hand_over, known["facts"])

        async for choice, note in answers(offered, ask):  # noqa: B007 - used below
            if choice is not None:
                break
        if choice is None:
            choice = next_roles(known["facts"])[0]
            await tools.record("fall_back", "supervisor")
            await tools.record("hand_over", choice)
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


def _role(name: str, agents: list[Any], tools: TeamTools, human: bool) -> Any:
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


def _person(tools: TeamTools) -> Any:
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
        work = await tools.record()
        if kind == "risky_edit" and answer != YES:
            work = await tools.record("take_back")
        elif kind == "failed_rounds" and answer != NO:
            work = await tools.record("more_rounds")
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
