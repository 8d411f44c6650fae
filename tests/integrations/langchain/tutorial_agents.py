"""Agents of the shapes that LangGraph's tutorials and prebuilt packages have."""

from typing import Any, Literal

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.tools import ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import interrupt

from tests.integrations.langchain.live_agents import (
    TOOLS,
    ask,
    build,
    find_book,
    lend_book,
    model,
)


class Assistant:
    """A node that keeps its model in an attribute."""

    def __init__(self, runnable: Runnable[Any, Any]) -> None:
        self.runnable = runnable

    def __call__(self, state: MessagesState) -> dict[str, Any]:
        """Ask the model."""
        return {"messages": self.runnable.invoke(state)}


def apologise(state: dict[str, Any]) -> dict[str, Any]:
    """Answer calls of tools that have failed."""
    calls = state["messages"][-1].tool_calls
    told = [ToolMessage(repr(state["error"]), tool_call_id=c["id"]) for c in calls]
    return {"messages": told}


with_fallbacks = build(
    Assistant(
        ChatPromptTemplate.from_messages([("placeholder", "{messages}")])
        | model.bind_tools(TOOLS)
    ),
    tools=ToolNode(TOOLS).with_fallbacks(
        [RunnableLambda(apologise)], exception_key="error"
    ),
)

stopping_before = build(ask, checkpointer=InMemorySaver(), interrupt_before=["tools"])
stopping_after = build(ask, interrupt_after=["assistant"])


def approving(mode: Literal["batched", "per_call"], **decisions: Any) -> Any:
    """Return an agent whose calls wait for a decision; its server keeps the state."""
    middleware = HumanInTheLoopMiddleware(interrupt_on=decisions, interrupt_mode=mode)
    return create_agent(model, TOOLS, middleware=[middleware])


per_call = approving("per_call", find_book=True, lend_book=True)
never_approving = approving(
    "per_call",
    find_book={"allowed_decisions": ["respond", "reject"]},
    lend_book={"allowed_decisions": ["edit", "reject"]},
)
never_approving_batched = approving(
    "batched",
    find_book={"allowed_decisions": ["respond"]},
    lend_book={"allowed_decisions": ["edit"]},
)


@tool("lend_book")
def lend_if_allowed(book: str, member: str) -> str:
    """Lend a book to a member."""
    if interrupt(f"May {member} have {book}?") != "yes":
        raise ToolException("not allowed")
    return str(lend_book.invoke({"book": book, "member": member}))


@tool("find_book")
def find_after_review(title: str) -> str:
    """Find a book by its title."""
    asked = {"action_request": {"action": "find_book", "args": {"title": title}}}
    [review] = interrupt([asked])
    return str(find_book.invoke(review["args"] or {"title": title}))


asking_in_tools = create_agent(
    model, [find_after_review, lend_if_allowed], checkpointer=InMemorySaver()
)


def _rechecking() -> Any:
    """Return a graph that lists by its own code, and whose calls a node replaces."""

    def first(state: MessagesState) -> dict[str, Any]:
        call = {"name": "find_book", "args": {"title": "all"}, "id": "own"}
        made = AIMessage("", tool_calls=[{**call, "type": "tool_call"}])
        return {"messages": [made, find_book.invoke({**call, "type": "tool_call"})]}

    def lend(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.bind_tools([lend_book]).invoke(state["messages"])]}

    def check(state: MessagesState) -> dict[str, Any]:
        asked = state["messages"][-1].tool_calls[0]["args"]  # type: ignore[union-attr]
        strict = model.bind_tools([lend_book], tool_choice="any")
        said = strict.invoke([HumanMessage(f"Double check {asked}.")])
        said.id = state["messages"][-1].id
        return {"messages": [said]}

    def is_done(state: MessagesState) -> str:
        return "check" if state["messages"][-1].tool_calls else END  # type: ignore[union-attr]

    builder = StateGraph(MessagesState)
    for name, node in (("first", first), ("lend", lend), ("check", check)):
        builder.add_node(name, node)
    builder.add_node("tools", ToolNode([lend_book]))
    builder.add_edge(START, "first")
    builder.add_edge("first", "lend")
    builder.add_conditional_edges("lend", is_done, ["check", END])
    builder.add_edge("check", "tools")
    builder.add_edge("tools", "lend")
    return builder.compile()


rechecking = _rechecking()


def _one_at_a_time() -> Any:
    """Return an agent that refuses several calls of one message."""

    def call(state: MessagesState) -> dict[str, Any]:
        calls = state["messages"][-1].tool_calls  # type: ignore[union-attr]
        if len(calls) > 1:
            told = [ToolMessage("One at a time!", tool_call_id=c["id"]) for c in calls]
            return {"messages": told}
        return ToolNode(TOOLS).invoke(state)  # type: ignore[no-any-return]

    return build(ask, tools=call)


one_at_a_time = _one_at_a_time()
