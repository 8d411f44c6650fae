"""Agents and teams as their authors wrote them, for no training: with clients of their
own, at the top of a module."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from autogen_agentchat.agents import (
    AssistantAgent,
    BaseChatAgent,
    SocietyOfMindAgent,
    UserProxyAgent,
)
from autogen_agentchat.base import Response
from autogen_agentchat.conditions import HandoffTermination, TextMentionTermination
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_agentchat.teams import (
    MagenticOneGroupChat,
    RoundRobinGroupChat,
    SelectorGroupChat,
    Swarm,
)
from autogen_agentchat.tools import AgentTool
from autogen_core.tools import (
    FunctionTool,
    TextResultContent,
    ToolResult,
    ToolSchema,
    Workbench,
)
from autogen_ext.models.openai import OpenAIChatCompletionClient
from openai import AsyncOpenAI
from pydantic import BaseModel

client = OpenAIChatCompletionClient(model="gpt-4o")
DONE = TextMentionTermination("DONE", sources=["worker"])
REAL = "the real tool ran"


def list_files() -> str:
    """List the files."""
    return REAL


async def shout(word: str) -> str:
    """Say it aloud."""
    return word.upper()


def helper(name: str = "worker", **options: Any) -> AssistantAgent:
    settings: dict[str, Any] = {"max_tool_iterations": 9, **options}
    return AssistantAgent(name, client, system_message="You look.", **settings)


clerk = helper("clerk", tools=[list_files, shout])
planner = AssistantAgent("planner", client, system_message="You plan.")
worker = helper(tools=[list_files])
desk = AssistantAgent("desk", client, handoffs=["worker"])
pair = RoundRobinGroupChat([planner, worker], termination_condition=DONE)
selected = SelectorGroupChat([planner, worker], client, termination_condition=DONE)
swarm = Swarm(
    [desk, worker], termination_condition=DONE | HandoffTermination(target="user")
)
nested = RoundRobinGroupChat(
    [RoundRobinGroupChat([worker], max_turns=1), planner], max_turns=2
)
society = SocietyOfMindAgent(
    "society", RoundRobinGroupChat([worker], max_turns=1), client
)
boss = helper("boss", tools=[AgentTool(worker)])


class Far(Workbench):
    """Tools that are only to be had between start and stop, as a server's."""

    component_type = "workbench"

    def __init__(self) -> None:
        self.runs = 0

    async def list_tools(self) -> list[ToolSchema]:
        assert self.runs == 1
        parameters = {"type": "object", "properties": {}}
        return [
            ToolSchema(name=name, description="Far.", parameters=parameters)  # type: ignore[typeddict-item]
            for name in ("list_files", "far")
        ]

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: Any = None,
        call_id: str | None = None,
    ) -> ToolResult:
        assert self.runs == 1
        return ToolResult(name=name, result=[TextResultContent(content=REAL)])

    async def start(self) -> None:
        self.runs += 1

    async def stop(self) -> None:
        self.runs -= 1

    async def reset(self) -> None: ...

    async def save_state(self) -> Mapping[str, Any]:
        return {}

    async def load_state(self, state: Mapping[str, Any]) -> None: ...


far = helper("far", workbench=Far())


class Author(BaseChatAgent):
    """An agent of the author's own class, with a client of OpenAI's own."""

    def __init__(self, name: str = "author", misdeed: str = "") -> None:
        super().__init__(name, "An author.")
        self.openai = AsyncOpenAI()
        self.heard: list[dict[str, Any]] = []
        self.misdeed = misdeed

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(
        self, messages: Sequence[BaseChatMessage], cancellation_token: Any
    ) -> Response:
        print("I was asked", file=sys.stdout)  # noqa: T201
        match self.misdeed:
            case "raise":
                raise ValueError("the agent is broken")
            case "exit":
                raise SystemExit(3)
            case "loop":
                while True:
                    await asyncio.sleep(0.01)
            case "silence":
                return self.said("I know better.")
        self.heard += [{"role": "user", "content": m.to_model_text()} for m in messages]
        told = await self.openai.chat.completions.create(
            model="gpt-4o",
            messages=self.heard,  # type: ignore[arg-type]
        )
        return self.said(told.choices[0].message.content or "")

    def said(self, text: str) -> Response:
        return Response(chat_message=TextMessage(content=text, source=self.name))

    async def on_reset(self, cancellation_token: Any) -> None: ...


author = Author()
breaking = Author(misdeed="raise")
exiting = Author(misdeed="exit")
exiting_team = RoundRobinGroupChat([exiting], max_turns=1)
looping = Author(misdeed="loop")
deaf = Author(misdeed="silence")


def quit_all() -> str:
    """Quit."""
    raise SystemExit(3)


quitting = helper("quitting", tools=[quit_all])
asking = RoundRobinGroupChat([clerk, UserProxyAgent("person")], max_turns=4)


class Answer(BaseModel):
    text: str


magentic = MagenticOneGroupChat([worker], client)
strict = FunctionTool(list_files, description="List the files.", strict=True)
structured = AssistantAgent(
    "structured", client, tools=[strict], output_content_type=Answer
)
magentic_pair = MagenticOneGroupChat([worker, planner], client, max_turns=3)
nobody = RoundRobinGroupChat([UserProxyAgent("person")], max_turns=1)
nothing = {"agent": clerk}


def peek(where: Any) -> str:
    """Peek."""
    return str(where)


def make_own() -> AssistantAgent:
    return helper("own", tools=[list_files, shout])


def make_on(model_client: Any) -> AssistantAgent:
    return AssistantAgent("on", model_client, tools=[list_files], max_tool_iterations=9)


async def make_later(llm: Any, tools: list[Any]) -> AssistantAgent:
    await asyncio.sleep(0)
    return AssistantAgent("later", llm, tools=tools, max_tool_iterations=9)


def first(task: Any) -> TextMessage:
    return TextMessage(content=f"Please: {task.id}", source="caller")


def wrongly(task: Any) -> int:
    return 3
