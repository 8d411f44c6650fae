"""Agents of shapes that public examples have, in a repair shop's words."""

from typing import Annotated, Any, Literal, NotRequired

from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import ModelRequest, wrap_model_call
from langchain.tools import ToolRuntime
from langchain_core.messages import (
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import InjectedToolArg, tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.runtime import Runtime
from langgraph.types import Command
from pydantic import BaseModel

model = ChatOpenAI(model="gpt-4o", temperature=0)


class Stage(AgentState[Any]):
    """How far a repair has come."""

    stage: NotRequired[str]


@tool
def note_age(years: int, runtime: ToolRuntime[None, Stage]) -> Command[Any]:
    """Note how old the device is; its fault comes next."""
    told = ToolMessage(f"{years} years", tool_call_id=runtime.tool_call_id)
    return Command(update={"messages": [told], "stage": "fault"})


@tool
def order_part(name: str) -> str:
    """Order a part."""
    return f"ordered {name}"


@wrap_model_call
def by_stage(request: ModelRequest[Any], handler: Any) -> Any:
    """Offer the one tool of the stage; there is no asynchronous form of this."""
    fits = order_part if request.state.get("stage") else note_age
    return handler(request.override(tools=[fits]))


staged = create_agent(
    model,
    [note_age, order_part],
    state_schema=Stage,
    middleware=[by_stage],
    checkpointer=InMemorySaver(),
)


class Verdict(BaseModel):
    """Whether a part fits."""

    fits: Literal["yes", "no"]


def ask(state: MessagesState) -> dict[str, Any]:
    """Ask for the part to order."""
    return {"messages": [model.bind_tools([order_part]).invoke(state["messages"])]}


def judge(state: MessagesState) -> Literal["assistant", "__end__"]:
    """Ask, on the edge behind the tools, whether the part fits."""
    said: Any = model.with_structured_output(Verdict).invoke(state["messages"])
    return "__end__" if said.fits == "yes" else "assistant"


def _judged() -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("assistant", ask)
    builder.add_node("tools", ToolNode([order_part]))
    builder.add_edge(START, "assistant")
    builder.add_conditional_edges("assistant", tools_condition)
    builder.add_conditional_edges("tools", judge)
    return builder.compile()


judged = _judged()


@tool
class Finished(BaseModel):
    """Say that the repair is finished."""

    tested: bool


OWN = {each.name: each for each in (order_part, Finished)}


def work_or_finish(state: MessagesState) -> dict[str, Any]:
    """Ask for one of the tools, which must be called."""
    offered = model.bind_tools(list(OWN.values()), tool_choice="any")
    return {"messages": [offered.invoke(state["messages"])]}


def work(state: MessagesState) -> dict[str, Any]:
    """Run the tools that were called."""
    said: Any = state["messages"][-1]
    return {
        "messages": [
            ToolMessage(OWN[c["name"]].invoke(c["args"]), tool_call_id=c["id"])
            for c in said.tool_calls
        ]
    }


def unfinished(state: MessagesState) -> str:
    """End where Finished was called, without an answer to it."""
    said: Any = state["messages"][-1]
    calls = {call["name"] for call in said.tool_calls}
    return "work" if calls and "Finished" not in calls else END


def _finishing() -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("assistant", work_or_finish)
    builder.add_node("work", work)
    builder.add_edge(START, "assistant")
    builder.add_conditional_edges("assistant", unfinished, ["work", END])
    builder.add_edge("work", "assistant")
    return builder.compile()


finishing = _finishing()


def ask_with_notes(state: MessagesState, runtime: Runtime[None]) -> dict[str, Any]:
    """Ask with what a server's store remembers."""
    assert runtime.store is not None
    notes = runtime.store.search(("notes",))
    runtime.store.put(("notes",), str(len(notes)), {"said": "a part"})
    said = [SystemMessage(f"{len(notes)} notes."), *state["messages"]]
    return {"messages": [model.bind_tools([order_part]).invoke(said)]}


def _noting() -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("assistant", ask_with_notes)
    builder.add_node("tools", ToolNode([order_part]))
    builder.add_edge(START, "assistant")
    builder.add_conditional_edges("assistant", tools_condition)
    builder.add_edge("tools", "assistant")
    return builder.compile()


noting = _noting()


DIARY: list[str] = []


def write_diary(line: str, owner: Annotated[str, InjectedToolArg]) -> str:
    """Write a line into the diary."""
    DIARY.append(line)
    return f"{owner} wrote {line}"


REPORT = {
    "name": "Report",
    "description": "Report what was repaired.",
    "parameters": {
        "type": "object",
        "properties": {"part": {"type": "string"}},
        "required": ["part"],
    },
}


def ask_by_function(state: MessagesState) -> dict[str, Any]:
    """Ask with a plain function and with a schema that only this node knows."""
    offered = model.bind_tools([write_diary, REPORT])
    return {"messages": [offered.invoke(state["messages"])]}


def answer_calls(state: MessagesState) -> dict[str, Any]:
    """Answer calls without a tool of the framework's."""
    said: Any = state["messages"][-1]
    answers = [
        write_diary(**call["args"], owner="Ana")
        if call["name"] == "write_diary"
        else f"reported {call['args']['part']}"
        for call in said.tool_calls
    ]
    return {
        "messages": [
            ToolMessage(answer, tool_call_id=call["id"])
            for answer, call in zip(answers, said.tool_calls, strict=True)
        ]
    }


def _diarist() -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("assistant", ask_by_function)
    builder.add_node("tools", answer_calls)
    builder.add_edge(START, "assistant")
    builder.add_conditional_edges("assistant", tools_condition)
    builder.add_edge("tools", "assistant")
    return builder.compile()


diarist = _diarist()


@task
def ask_in_task(messages: list[Any]) -> Any:
    """Ask the model in a task of its own."""
    return model.bind_tools([order_part]).invoke(messages)


@task
def order_in_task(call: Any) -> Any:
    """Order in a task of its own."""
    return BY_NAME[call["name"]].invoke(call)


BY_NAME = {"order_part": order_part}


@entrypoint()
def by_messages(messages: list[BaseMessage]) -> list[BaseMessage]:
    """Order until the model is done, in LangGraph's functional form."""
    said = ask_in_task(messages).result()
    while said.tool_calls:
        ordered = [order_in_task(call) for call in said.tool_calls]
        messages = [*messages, said, *(each.result() for each in ordered)]
        said = ask_in_task(messages).result()
    return [*messages, said]


@entrypoint()
def by_words(request: str) -> dict[str, Any]:
    """Take the request as words, and return an object without messages."""
    return {"said": by_messages.invoke([HumanMessage(request)])[-1].text}


def answers_done(task: Any, calls: list[Any], state: dict[str, Any]) -> bool:
    """Check that a hinge was ordered, and that the agent's result says so."""
    return len(calls) == 1 and "Done." in state["answer"]


class Sorted(MessagesState):
    """Messages, what the agent decided, and values that JSON does not have."""

    verdict: Verdict
    scan: bytes
    loop: dict[str, Any]


def sort(state: MessagesState) -> dict[str, Any]:
    """Decide by a form; there are no tools."""
    asked = model.with_structured_output(Verdict, method="function_calling")
    said: Any = asked.invoke(state["messages"])
    loop: dict[str, Any] = {}
    loop["again"] = loop
    odd = {"scan": b"\xff", "loop": loop}
    return {"messages": [("assistant", said.fits)], "verdict": said, **odd}


def fits(task: Any, calls: list[Any], state: dict[str, Any]) -> bool:
    """Check what the agent decided, in its state alone."""
    return state["agent"].get("verdict", {}).get("fits") == "yes"


sorting = StateGraph(Sorted).add_node(sort).set_entry_point("sort").compile()
