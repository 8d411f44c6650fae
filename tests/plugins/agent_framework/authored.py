"""Agents and workflows of Agent Framework as their authors wrote them."""

import asyncio
from typing import Any

from agent_framework import (
    Agent,
    AgentContext,
    AgentExecutorResponse,
    AgentResponse,
    Executor,
    FunctionInvocationContext,
    MCPStdioTool,
    Message,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
    response_handler,
    tool,
)
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient
from agent_framework.orchestrations import HandoffBuilder, SequentialBuilder
from openai import AsyncOpenAI
from pydantic import BaseModel

client = OpenAIChatClient(model="gpt-5", api_key="an author's")
REAL = "the real tool ran"


@tool
def list_files() -> str:
    """List the files."""
    return REAL


async def shout(word: str) -> str:
    """Say it aloud."""
    return word.upper()


@tool(name="list_files", approval_mode="always_require")
def list_if_allowed() -> str:
    """List the files, if a person allows it."""
    return REAL


@tool
def greet(word: str, ctx: FunctionInvocationContext) -> str:
    """Greet the user of the session."""
    return f"{word}, {ctx.kwargs.get('user', 'you')}!"


@tool
def quit_all() -> str:
    """Quit."""
    raise SystemExit(3)


@tool
async def ask_openai(question: str) -> str:
    """Ask OpenAI's own client."""
    told = await AsyncOpenAI().chat.completions.create(
        model="gpt-4o", messages=[{"role": "user", "content": question}]
    )
    return told.choices[0].message.content or ""


class Answer(BaseModel):
    text: str
    files: int


def helper(name: str, *tools: Any, **options: Any) -> Agent:
    return Agent(client, "You look.", name=name, tools=list(tools), **options)


clerk = helper("clerk", list_files, shout)
chatty = Agent(
    OpenAIChatCompletionClient(model="gpt-4o", api_key="x"), tools=[list_files]
)
boss = helper("boss", clerk.as_tool(name="ask_clerk", arg_name="question"))
typed = helper("typed", list_files, default_options={"response_format": Answer})
thinking = helper(
    "thinking", list_files, default_options={"reasoning": {"effort": "low"}}
)
searching = helper("searching", client.get_web_search_tool(), list_files)
approved = helper("approved", list_if_allowed)
greeting = helper("greeting", greet)
afar = helper("afar", MCPStdioTool(name="shop", command="no-such-command", args=[]))
quitting = helper("quitting", quit_all)
author = helper("author", ask_openai)


async def seen(context: AgentContext, call_next: Any) -> None:
    context.messages.append(Message("user", ["Be quick."]))
    await call_next()


reminded = helper("reminded", list_files, middleware=[seen])


async def broken(context: AgentContext, call_next: Any) -> None:
    raise ValueError("the agent is broken")


async def leaving(context: AgentContext, call_next: Any) -> None:
    raise SystemExit(3)


async def silent(context: AgentContext, call_next: Any) -> None:
    context.result = AgentResponse(messages=[Message("assistant", ["I know better."])])


breaking = helper("breaking", list_files, middleware=[broken])
exiting = helper("exiting", list_files, middleware=[leaving])
deaf = helper("deaf", list_files, middleware=[silent])
nothing = {"agent": clerk}


@executor(id="end")
async def end(found: AgentExecutorResponse, ctx: WorkflowContext[None, str]) -> None:
    await ctx.yield_output(found.agent_response.text)


class Counting(Executor):
    """Holds an agent, and a state that no other episode may see."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(id="counting")
        self.agent = agent
        self.asked = 0

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        self.asked += 1
        said = await self.agent.run(text)
        await ctx.yield_output(f"{self.asked}: {said.text}")


class Asking(Executor):
    """Asks a person before it answers."""

    def __init__(self) -> None:
        super().__init__(id="asking")
        self.found = ""

    @handler
    async def ask(
        self, found: AgentExecutorResponse, ctx: WorkflowContext[None, str]
    ) -> None:
        self.found = found.agent_response.text
        await ctx.request_info("May they see it?", str)

    @response_handler
    async def tell(
        self, question: str, answer: str, ctx: WorkflowContext[None, str]
    ) -> None:
        await ctx.yield_output(f"{answer}: {self.found}")


planner = Agent(client, "You plan.", name="planner")
worker = helper("worker", list_files)
chain = (
    WorkflowBuilder(start_executor=planner)
    .add_edge(planner, worker)
    .add_edge(worker, end)
    .build()
)
asked = WorkflowBuilder(start_executor=worker).add_edge(worker, Asking()).build()
counted = WorkflowBuilder(start_executor=Counting(worker)).build()
sequence = SequentialBuilder(participants=[planner, worker]).build()
desk = Agent(
    client,
    "You send on.",
    name="desk",
    require_per_service_call_history_persistence=True,
)
expert = helper("expert", list_files, require_per_service_call_history_persistence=True)
handed = HandoffBuilder(participants=[desk, expert]).with_start_agent(desk).build()


def make_own() -> Agent:
    return helper("own", list_files)


def make_on(llm: Any) -> Agent:
    return Agent(llm, tools=[list_files])


async def make_later(llm: Any, tools: list[Any]) -> Agent:
    await asyncio.sleep(0)
    return Agent(llm, tools=tools)


def make_workflow(llm: Any, tools: list[Any]) -> Workflow:
    look = Agent(llm, "You look.", name="look", tools=tools)
    return SequentialBuilder(participants=[look]).build()


def first(task: Any) -> str:
    return f"Please: {task.id}"
