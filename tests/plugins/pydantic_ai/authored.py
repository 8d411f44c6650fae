"""Agents of pydantic-ai as their authors wrote them, for no training."""

import asyncio
from dataclasses import dataclass
from typing import Any

from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    DeferredToolRequests,
    ModelRetry,
    NativeOutput,
    RunContext,
    ToolDefinition,
)
from pydantic_ai.agent import AgentRunResult
from pydantic_ai.toolsets import FunctionToolset

MODEL = "openai:gpt-4o"
REAL = "the real tool ran"


def list_files() -> str:
    """List the files."""
    return REAL


async def shout(word: str) -> str:
    """Say it aloud."""
    return word.upper()


class Answer(BaseModel):
    """An answer."""

    text: str
    files: int


def finish(text: str, files: int) -> Answer:
    """Answer the request."""
    return Answer(text=text, files=files)


@dataclass
class Deps:
    user: str = "Ann"


clerk = Agent(MODEL, name="clerk", system_prompt="You look.", tools=[list_files, shout])
without_model = Agent(instructions="You look.", tools=[list_files])
typed = Agent(MODEL, output_type=Answer, tools=[list_files])
native = Agent(MODEL, output_type=NativeOutput(Answer), tools=[list_files])
boss = Agent(MODEL, name="boss", instructions="You lead.")
toolset = FunctionToolset([list_files])
held = Agent(MODEL, toolsets=[toolset.filtered(lambda ctx, tool: True)])
named = Agent(MODEL, toolsets=[FunctionToolset([shout]).prefixed("my")])
knowing = Agent(MODEL, deps_type=Deps, tools=[list_files])
approved = Agent(MODEL, output_type=[str, DeferredToolRequests])
wary = Agent(
    MODEL,
    tools=[list_files],
    toolsets=[FunctionToolset([shout]).prefixed("my").approval_required()],
    output_type=[finish, DeferredToolRequests],
)
checked = Agent(MODEL, tools=[list_files])
strict = Agent(MODEL, tools=[shout])
author = Agent(MODEL)


@knowing.instructions
def who(ctx: RunContext[Deps]) -> str:
    return f"The user is {ctx.deps.user}."


@knowing.tool
def greet(ctx: RunContext[Deps], word: str) -> str:
    """Greet the user."""
    return f"{word}, {ctx.deps.user}!"


async def if_known(
    ctx: RunContext[Deps], definition: ToolDefinition
) -> ToolDefinition | None:
    return definition if ctx.deps.user else None


choosing = Agent(
    MODEL,
    deps_type=Deps,
    toolsets=[
        FunctionToolset[Deps]([shout])
        .filtered(lambda ctx, tool: bool(ctx.deps.user))
        .prefixed("my")
    ],
)
choosing.tool(prepare=if_known, name="greet")(greet)
deciding = Agent(MODEL)


@deciding.toolset
def decided(ctx: RunContext[Any]) -> FunctionToolset[Any]:
    return toolset


@boss.tool_plain
async def ask_clerk(question: str) -> str:
    """Ask the clerk."""
    return (await clerk.run(question)).output


@approved.tool_plain(requires_approval=True, name="list_files")
def list_if_allowed() -> str:
    """List the files, if a person allows it."""
    return REAL


@wary.tool
def remove(ctx: RunContext[Any], word: str) -> str:
    """Remove a word, if a person allows it."""
    if not ctx.tool_call_approved:
        raise ApprovalRequired
    return f"removed {word}"


@checked.output_validator
def is_long(output: str) -> str:
    if len(output) < 4:
        raise ModelRetry("Say more.")
    return output


@author.tool_plain
async def ask_openai(question: str) -> str:
    """Ask OpenAI's own client."""
    told = await AsyncOpenAI().chat.completions.create(
        model="gpt-4o", messages=[{"role": "user", "content": question}]
    )
    return told.choices[0].message.content or ""


def instructed(misdeed: type[BaseException], *args: Any) -> Agent[Any, Any]:
    def instructions() -> str:
        raise misdeed(*args)

    return Agent(MODEL, instructions=instructions, tools=[list_files])


class Deaf(Agent[Any, Any]):
    async def run(self, *args: Any, **named: Any) -> Any:
        return AgentRunResult("I know better.")


breaking = instructed(ValueError, "the agent is broken")
exiting = instructed(SystemExit, 3)
deaf = Deaf(MODEL, tools=[list_files])
nothing = {"agent": clerk}


def quit_all() -> str:
    """Quit."""
    raise SystemExit(3)


quitting = Agent(MODEL, tools=[quit_all])


def make_own() -> Agent[Any, Any]:
    return Agent(MODEL, tools=[list_files])


def make_on(model: Any) -> Agent[Any, Any]:
    return Agent(model, tools=[list_files])


async def make_later(llm: Any, tools: list[Any]) -> Agent[Any, Any]:
    await asyncio.sleep(0)
    return Agent(llm, tools=tools)


def first(task: Any) -> str:
    return f"Please: {task.id}"


def wrongly(task: Any) -> int:
    return 3


def deps(task: Any) -> Deps:
    return Deps(task.id)
