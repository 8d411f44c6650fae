"""Agents as people write them, with nothing of AgentGym's."""

import asyncio
import operator
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

from langchain.agents import create_agent
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    ModelCallLimitMiddleware,
)
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain.chat_models import init_chat_model
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, AnyMessage, SystemMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph, add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt
from openai import OpenAI
from openai.types.chat import ChatCompletionChunk
from pydantic import BaseModel, Field

BOOKS = {"B1": "shelf"}
"""The data of the application; training must not touch it."""


@tool
def find_book(title: str) -> str:
    """Find a book by its title."""
    return BOOKS.get(title, "nowhere")


@tool
def lend_book(book: str, member: str) -> str:
    """Lend a book to a member."""
    BOOKS[book] = member
    return "lent"


TOOLS: list[Any] = [find_book, lend_book]
PROMPT = "You run the desk of a library."
model = ChatOpenAI(model="gpt-4o-mini", temperature=0)
bound = model.bind_tools(TOOLS)


def build(node: Any, *, tools: Any = None, **compile: Any) -> Any:
    """Return the graph of LangGraph's tutorials, with another node."""
    builder = StateGraph(MessagesState)
    builder.add_node("assistant", node)
    builder.add_node("tools", tools or ToolNode(TOOLS))
    builder.add_edge(START, "assistant")
    builder.add_conditional_edges("assistant", tools_condition)
    builder.add_edge("tools", "assistant")
    return builder.compile(**compile)


def ask(state: MessagesState) -> dict[str, Any]:
    """Ask a model of the module, synchronously."""
    return {"messages": [bound.invoke([SystemMessage(PROMPT), *state["messages"]])]}


async def ask_async(state: MessagesState) -> dict[str, Any]:
    """Ask it asynchronously."""
    return {"messages": [await bound.ainvoke(state["messages"])]}


def ask_in_a_loop_of_its_own(state: MessagesState) -> dict[str, Any]:
    """Ask it asynchronously, from synchronous code."""
    return {"messages": [asyncio.run(bound.ainvoke(state["messages"]))]}


def ask_own(state: MessagesState) -> dict[str, Any]:
    """Make a model for each call."""
    llm = init_chat_model("openai:gpt-4o").bind_tools(TOOLS)
    return {"messages": [llm.invoke(state["messages"])]}


def ask_streaming(state: MessagesState) -> dict[str, Any]:
    """Put an answer together of its pieces."""
    first, *others = bound.stream(state["messages"])
    for piece in others:
        first += piece
    return {"messages": [first]}


chain = ChatPromptTemplate.from_messages(
    [("system", PROMPT), MessagesPlaceholder("messages")]
) | model.bind_tools(TOOLS)


def ask_chain(state: MessagesState) -> dict[str, Any]:
    """Ask through a chain of a prompt and a model."""
    return {"messages": [chain.invoke({"messages": state["messages"]})]}


def ask_with_hosted(state: MessagesState) -> dict[str, Any]:
    """Offer a tool that OpenAI's servers run, too."""
    hosted = {"type": "file_search", "vector_store_ids": ["vs_1"]}
    return {"messages": [model.bind_tools([hosted, *TOOLS]).invoke(state["messages"])]}


def ask_again(state: MessagesState) -> dict[str, Any]:
    """Offer one tool three times, then both."""
    for _ in range(3):
        model.bind_tools([lend_book]).invoke(state["messages"])
    return ask(state)


def ask_openai(state: MessagesState) -> dict[str, Any]:
    """Ask by OpenAI's own package."""
    from langchain_core.messages import convert_to_openai_messages
    from langchain_core.utils.function_calling import convert_to_openai_tool

    said = OpenAI().chat.completions.create(
        model="gpt-4o",
        messages=convert_to_openai_messages(state["messages"]),  # type: ignore[arg-type]
        tools=[convert_to_openai_tool(each) for each in TOOLS],  # type: ignore[misc]
    )
    assert ChatCompletionChunk.__pydantic_complete__  # no two threads build it
    message = said.choices[0].message
    calls = [
        {
            "name": c.function.name,
            "args": __import__("json").loads(c.function.arguments),
            "id": c.id,
        }
        for c in message.tool_calls or ()
        if c.type == "function"
    ]
    return {"messages": [AIMessage(message.content or "", tool_calls=calls)]}


class Assistant:
    """A node that is an object, with the model in it."""

    def __init__(self, llm: Any) -> None:
        self.runnable = llm

    def __call__(self, state: MessagesState) -> dict[str, Any]:
        """Ask."""
        return {"messages": [self.runnable.invoke(state["messages"])]}


def run_tools(state: MessagesState) -> dict[str, Any]:
    """Run tools in a node of one's own."""
    by_name = {each.name: each for each in TOOLS}
    last: Any = state["messages"][-1]
    made = [
        by_name[c["name"]].invoke({**c, "type": "tool_call"}) for c in last.tool_calls
    ]
    return {"messages": made}


def run_functions(state: MessagesState) -> dict[str, Any]:
    """Run the functions, past the framework."""
    from langchain_core.messages import ToolMessage

    by_name = {each.name: each.func for each in TOOLS}
    last: Any = state["messages"][-1]
    made = [
        ToolMessage(str(by_name[c["name"]](**c["args"])), tool_call_id=c["id"])
        for c in last.tool_calls
    ]
    return {"messages": made}


def ask_in_thread(state: MessagesState) -> dict[str, Any]:
    """Ask in a thread of one's own."""
    said: list[Any] = []
    asking = threading.Thread(target=lambda: said.append(bound.invoke("Hello")))
    asking.start()
    asking.join()
    return {"messages": said}


def ask_in_pool(state: MessagesState) -> dict[str, Any]:
    """Ask in a pool of one's own."""
    with ThreadPoolExecutor(1) as pool:
        return {"messages": [pool.submit(bound.invoke, "Hello").result()]}


threaded = build(ask_in_thread)
pooled = build(ask_in_pool)
sync_nodes = build(ask)
loops_in_nodes = build(ask_in_a_loop_of_its_own)
async_nodes = build(ask_async)
made_in_node = build(ask_own)
streaming = build(ask_streaming)
chained = build(ask_chain)
hosting = build(ask_with_hosted)
long_winded = build(ask_again)
by_openai = build(ask_openai)
object_node = build(Assistant(bound))
own_tool_node = build(ask, tools=run_tools)
remembering = build(ask, checkpointer=InMemorySaver(), store=InMemoryStore())
past_training = build(ask, tools=run_functions)

plain = create_agent(model, TOOLS, system_prompt=PROMPT, name="desk")
limited = create_agent(
    model, TOOLS, middleware=[ModelCallLimitMiddleware(run_limit=20)]
)


class Report(BaseModel):
    """What was done."""

    summary: str


by_tool = create_agent(model, TOOLS, response_format=ToolStrategy(Report))
by_provider = create_agent(model, TOOLS, response_format=ProviderStrategy(Report))


class Route(BaseModel):
    """Who goes on."""

    to: Literal["assistant", "nobody"]


def _routed(method: Literal["function_calling", "json_schema", "json_mode"]) -> Any:
    """Return a graph whose model first says, in a form, who goes on."""

    def route(state: MessagesState) -> Command[Any]:
        llm = model.with_structured_output(Route, method=method)
        said: Any = llm.invoke(state["messages"])
        return Command(goto=said.to if said.to == "assistant" else END)

    builder = StateGraph(MessagesState)
    builder.add_node("route", route, destinations=("assistant", END))
    builder.add_node("assistant", create_agent(model, TOOLS))
    builder.add_edge(START, "route")
    return builder.compile()


def _closed_desk(state: MessagesState) -> dict[str, Any]:
    """Ask for any JSON object, and fail at something else."""
    model.bind(response_format={"type": "json_object"}).invoke(state["messages"])
    raise ConnectionError("the desk's database is gone")


closed = StateGraph(MessagesState)
closed.add_node("desk", _closed_desk)
closed.add_edge(START, "desk")
closed_after_any_object = closed.compile()

MEETING = 40
_ALL = threading.Barrier(MEETING)


async def _met(state: MessagesState) -> dict[str, Any]:
    """Wait in a thread until all episodes do."""
    await asyncio.to_thread(_ALL.wait, 20)
    return {"messages": [await model.ainvoke(state["messages"])]}


meet = StateGraph(MessagesState)
meet.add_node("meet", _met)
meet.add_edge(START, "meet")
meeting = meet.compile()


class Shelf(BaseModel):
    """Where the book stands."""

    number: int = Field(ge=3, le=90)


def _shelved(state: MessagesState) -> dict[str, Any]:
    """Look up a shelf by the model's number, of which most are too high."""
    said: Any = model.with_structured_output(Shelf).invoke(state["messages"])
    name = ["novels", "poems", "maps"][said.number]
    return {"messages": [AIMessage(f"Look at the {name}.")]}


shelves = StateGraph(MessagesState)
shelves.add_node("lend", create_agent(model, TOOLS))
shelves.add_node("shelf", _shelved)
shelves.add_edge(START, "lend")
shelves.add_edge("lend", "shelf")
shelved = shelves.compile()
routed = _routed("function_calling")
routed_by_provider = _routed("json_schema")
routed_by_any_object = _routed("json_mode")
approving = create_agent(
    model,
    TOOLS,
    middleware=[HumanInTheLoopMiddleware(interrupt_on={"lend_book": True})],
    checkpointer=InMemorySaver(),
)


@dataclass
class Desk:
    """The context of a run."""

    prompt: str


def ask_in_context(state: MessagesState, runtime: Any) -> dict[str, Any]:
    """Ask with a prompt of the context."""
    said = [SystemMessage(runtime.context.prompt), *state["messages"]]
    return {"messages": [bound.invoke(said)]}


def _in_context() -> Any:
    from langgraph.runtime import Runtime

    ask_in_context.__annotations__["runtime"] = Runtime[Desk]
    builder = StateGraph(MessagesState, context_schema=Desk)
    builder.add_node("assistant", ask_in_context)
    builder.add_node("tools", ToolNode(TOOLS))
    builder.add_edge(START, "assistant")
    builder.add_conditional_edges("assistant", tools_condition)
    builder.add_edge("tools", "assistant")
    return builder.compile()


in_context = _in_context()


def desk_of(task: Any) -> Desk:
    """Return the context of a task."""
    return Desk(f"{PROMPT} {task.family}")


class Keyed(TypedDict):
    """A state with a key that must be given."""

    messages: Annotated[list[AnyMessage], add_messages]
    member: str


def ask_keyed(state: Keyed) -> dict[str, Any]:
    """Ask for a member."""
    said = [SystemMessage(f"{state['member']} asks."), *state["messages"]]
    return {"messages": [bound.invoke(said)]}


def _keyed() -> Any:
    builder = StateGraph(Keyed)
    builder.add_node("assistant", ask_keyed)
    builder.add_node("tools", ToolNode(TOOLS))
    builder.add_edge(START, "assistant")
    builder.add_conditional_edges("assistant", tools_condition)
    builder.add_edge("tools", "assistant")
    return builder.compile()


keyed = _keyed()


def keys_of(task: Any) -> dict[str, Any]:
    """Return the keys of a task."""
    return {"member": "Ann"}


def asking(state: MessagesState) -> dict[str, Any]:
    """Wait for a person before anything else."""
    interrupt("May I begin?")
    return ask(state)


waiting = build(asking, checkpointer=InMemorySaver())

lender = create_agent(model, [lend_book], name="lender")


@tool
def ask_lender(request: str) -> str:
    """Ask the colleague who lends books."""
    said = lender.invoke({"messages": [("user", request)]})
    return str(said["messages"][-1].text)


supervisor = create_agent(model, [find_book, ask_lender], name="supervisor")


@tool
def transfer_to_lender(runtime: ToolRuntime) -> Command[Any]:
    """Hand over to the colleague who lends books."""
    from langchain_core.messages import ToolMessage

    told = ToolMessage("Handed over.", tool_call_id=runtime.tool_call_id)
    return Command(goto="lender", graph=Command.PARENT, update={"messages": [told]})


transfer_to_lender.metadata = {"__handoff_destination": "lender"}
finder = create_agent(model, [find_book, transfer_to_lender], name="finder")


def _swarm() -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("finder", finder, destinations=("lender", END))
    builder.add_node("lender", lender)
    builder.add_edge(START, "finder")
    return builder.compile()


swarm = _swarm()


def make_graph() -> Any:
    """Make it without parameters."""
    return build(ask)


async def make_graph_async(config: Any) -> Any:
    """Make it as LangGraph's server lets it be made."""
    return build(ask_async)


def make_with_model(model: Any) -> Any:
    """Make it on a model, with tools of one's own."""
    return create_agent(model, TOOLS)


def make_of_nobody(database: str) -> Any:
    """Want what nobody gives."""


def make_nothing() -> Any:
    """Fail."""
    raise OSError("no database")


def make_none() -> Any:
    """Forget to return it."""


builder = StateGraph(MessagesState)


def ends(state: MessagesState) -> dict[str, Any]:
    """Answer without any model."""
    return {"messages": [AIMessage("No.")]}


silent = build(ends)


def exits(state: MessagesState) -> dict[str, Any]:
    """Leave."""
    sys.exit(3)


exiting = build(exits)


def raises(state: MessagesState) -> dict[str, Any]:
    """Fail."""
    sys.stdout.write("about to fail\n")
    raise OSError("the desk burnt down")


raising = build(raises)


async def hangs(state: MessagesState) -> dict[str, Any]:
    """Wait for ever."""
    await asyncio.sleep(3600)
    return {}


class Total(TypedDict):
    """A state without messages."""

    total: Annotated[int, operator.add]


class Opaque:
    """What no JSON holds."""


class Holder:
    """An object of a user's own class, around an agent."""

    def __init__(self) -> None:
        self.graph = plain


holder = Holder()
