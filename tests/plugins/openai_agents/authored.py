"""Agents of the OpenAI Agents SDK as their authors wrote them, for no training."""

import asyncio
from dataclasses import dataclass
from typing import Any

from agents import (
    Agent,
    FileSearchTool,
    GuardrailFunctionOutput,
    ModelSettings,
    RunContextWrapper,
    Runner,
    ToolGuardrailFunctionOutput,
    function_tool,
    handoff,
    input_guardrail,
    output_guardrail,
    tool_input_guardrail,
)
from openai import AsyncOpenAI
from pydantic import BaseModel

REAL = "the real tool ran"


@function_tool
def list_files() -> str:
    """List the files."""
    return REAL


@function_tool
async def shout(word: str) -> str:
    """Say it aloud.

    Args:
        word: What to say.
    """
    return word.upper()


@function_tool
def quit_all() -> str:
    """Quit."""
    raise SystemExit(3)


@function_tool(name_override="list_files", needs_approval=True)
def list_if_allowed() -> str:
    """List the files, if a person allows it."""
    return REAL


@function_tool
async def ask_openai(question: str) -> str:
    """Ask OpenAI's own client."""
    told = await AsyncOpenAI().chat.completions.create(
        model="gpt-4o", messages=[{"role": "user", "content": question}]
    )
    return told.choices[0].message.content or ""


@dataclass
class User:
    name: str


@function_tool
def greet(context: RunContextWrapper[User], word: str) -> str:
    """Greet the user."""
    return f"{word}, {context.context.name}!"


@function_tool
def label(word: str, size: int = 2, color: str | None = None) -> str:
    """Print a label."""
    return word * size


class Answer(BaseModel):
    text: str
    files: int


class Verdict(BaseModel):
    is_homework: bool


def knows(context: RunContextWrapper[User], agent: Any) -> str:
    return f"The user is {context.context.name}."


clerk = Agent(name="clerk", instructions="You look.", tools=[list_files, shout])
handed: list[str] = []
desk = Agent(name="desk", instructions="You send on.", handoffs=[clerk])
noted = Agent(
    name="noted",
    model="gpt-4o",
    handoffs=[handoff(clerk, on_handoff=lambda context: handed.append("on"))],
)
clerk_and_back = Agent(name="worker", tools=[list_files])
circle = Agent(name="circle", handoffs=[clerk_and_back])
clerk_and_back.handoffs.append(circle)
boss = Agent(
    name="boss",
    tools=[clerk.as_tool(tool_name="ask_clerk", tool_description="Ask the clerk.")],
)
typed = Agent(name="typed", tools=[list_files], output_type=Answer)
knowing = Agent(name="knowing", instructions=knows, tools=[list_files, greet])
approved = Agent(name="approved", tools=[list_if_allowed])
labelling = Agent(name="labelling", tools=[label])
quitting = Agent(name="quitting", tools=[quit_all])
author = Agent(name="author", tools=[ask_openai])
searching = Agent(
    name="searching",
    tools=[FileSearchTool(vector_store_ids=["x"]), list_files],
    model_settings=ModelSettings(tool_choice="required"),
)

judge = Agent(name="judge", instructions="Is it homework?", output_type=Verdict)


@input_guardrail
async def no_homework(context: Any, agent: Any, input: Any) -> GuardrailFunctionOutput:
    found = await Runner.run(judge, input, context=context.context)
    return GuardrailFunctionOutput(found.final_output, found.final_output.is_homework)


@input_guardrail(run_in_parallel=False)
def never(context: Any, agent: Any, input: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(None, tripwire_triggered=True)


@output_guardrail
def no_secret(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(None, "secret" in output)


guarded = Agent(
    name="guarded",
    tools=[list_files],
    input_guardrails=[no_homework],
    output_guardrails=[no_secret],
)


@tool_input_guardrail
def barring(data: Any) -> ToolGuardrailFunctionOutput:
    return ToolGuardrailFunctionOutput.raise_exception()


@function_tool(name_override="list_files", tool_input_guardrails=[barring])
def list_barred() -> str:
    """List the files, which a guardrail never lets pass."""
    return REAL


barred = Agent(name="barred", tools=[list_barred])
deaf = Agent(name="deaf", tools=[list_files], input_guardrails=[never])
nothing = {"agent": clerk}


def instructed(misdeed: type[BaseException], *args: Any) -> Agent[Any]:
    def instructions(context: Any, agent: Any) -> str:
        raise misdeed(*args)

    return Agent(name="misdoer", instructions=instructions, tools=[list_files])


breaking = instructed(ValueError, "the agent is broken")
exiting = instructed(SystemExit, 3)


def make_own() -> Agent[Any]:
    return Agent(name="own", tools=[list_files])


def make_on(model: Any) -> Agent[Any]:
    return Agent(name="on", model=model, tools=[list_files])


async def make_later(llm: Any, tools: list[Any]) -> Agent[Any]:
    await asyncio.sleep(0)
    return Agent(name="later", model=llm, tools=tools)


def first(task: Any) -> str:
    return f"Please: {task.id}"


def wrongly(task: Any) -> int:
    return 3


def user(task: Any) -> User:
    return User(task.id)
