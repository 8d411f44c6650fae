"""Agents of smolagents as their authors wrote them, for no training."""

import asyncio
from typing import Any

from openai import OpenAI
from smolagents import CodeAgent, OpenAIModel, Tool, ToolCallingAgent, tool

MODEL = OpenAIModel("gpt-4o", api_key="none")
REAL = "the real tool ran"


@tool
def list_files() -> str:
    """List the files."""
    return REAL


@tool
def shout(word: str) -> str:
    """Say it aloud.

    Args:
        word: What is said.
    """
    return word.upper()


@tool
def ask_openai(question: str) -> str:
    """Ask OpenAI's own client.

    Args:
        question: What is asked.
    """
    told = OpenAI().chat.completions.create(
        model="gpt-4o", messages=[{"role": "user", "content": question}]
    )
    return told.choices[0].message.content or ""


@tool
def quit_all() -> str:
    """Quit."""
    raise SystemExit(3)


class Greet(Tool):
    name = "greet"
    description = "Greet the user."
    inputs = {"word": {"type": "string", "description": "What is said."}}  # noqa: RUF012
    output_type = "string"

    def forward(self, word: str) -> str:
        return f"{word}, you!"


def agent(*tools: Any, **options: Any) -> ToolCallingAgent:
    options = {"instructions": "You look.", "verbosity_level": 0, **options}
    return ToolCallingAgent([*tools], MODEL, **options)


clerk = agent(list_files, shout, name="clerk", description="Knows the files.")
bare = ToolCallingAgent([list_files], MODEL)
streaming = agent(list_files, stream_outputs=True)
planning = agent(list_files, planning_interval=5)
greeting = agent(Greet())
author = agent(ask_openai)
quitting = agent(quit_all)
boss = agent(name="boss", instructions="You lead.", managed_agents=[clerk])
coder = CodeAgent([list_files], MODEL, name="coder", description="Writes code.")
leader = agent(managed_agents=[coder])


class Broken(ToolCallingAgent):
    misdeed: BaseException

    def run(self, *args: Any, **named: Any) -> Any:
        raise self.misdeed


class Deaf(ToolCallingAgent):
    def run(self, *args: Any, **named: Any) -> Any:
        return "I know better."


def broken(misdeed: BaseException) -> ToolCallingAgent:
    made = Broken([list_files], MODEL)
    made.misdeed = misdeed
    return made


breaking, exiting = broken(ValueError("the agent is broken")), broken(SystemExit(3))
deaf = Deaf([list_files], MODEL)
nothing = {"agent": clerk}


def make_own() -> ToolCallingAgent:
    return agent(list_files)


def make_on(model: Any) -> ToolCallingAgent:
    return ToolCallingAgent([list_files], model)


async def make_later(llm: Any, tools: list[Any]) -> ToolCallingAgent:
    await asyncio.sleep(0)
    return ToolCallingAgent(tools, llm)


def first(task: Any) -> str:
    return f"Please: {task.id}"


def wrongly(task: Any) -> int:
    return 3
