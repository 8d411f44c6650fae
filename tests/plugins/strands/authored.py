"""Agents of Strands as their authors wrote them, for no training."""

import asyncio
from typing import Any

from openai import AsyncOpenAI
from pydantic import BaseModel
from strands import Agent, ToolContext, tool
from strands.agent.agent_result import AgentResult
from strands.models.openai import OpenAIModel
from strands.session import FileSessionManager
from strands.telemetry.metrics import EventLoopMetrics

MODEL = OpenAIModel(client_args={"api_key": "none"}, model_id="gpt-4o")
REAL = "the real tool ran"


@tool
def list_files() -> str:
    """List the files."""
    return REAL


@tool
async def shout(word: str) -> str:
    """Say it aloud."""
    return word.upper()


@tool(context=True)
def greet(word: str, tool_context: ToolContext) -> str:
    """Greet the user."""
    asked = tool_context.agent.messages[0]["content"]
    return f"{word}, {'you' if asked else 'nobody'}!"


@tool
async def ask_openai(question: str) -> str:
    """Ask OpenAI's own client."""
    told = await AsyncOpenAI().chat.completions.create(
        model="gpt-4o", messages=[{"role": "user", "content": question}]
    )
    return told.choices[0].message.content or ""


@tool
def quit_all() -> str:
    """Quit."""
    raise SystemExit(3)


@tool(context=True)
def if_allowed(tool_context: ToolContext) -> str:
    """List the files, if a person allows it."""
    said = tool_context.interrupt("allow", reason="May I?")
    return f"{said}: {REAL}"


@tool(context=True)
def count(tool_context: ToolContext) -> str:
    """Count the calls of this tool."""
    state = tool_context.agent.state
    state.set("seen", (state.get("seen") or 0) + 1)
    return str(state.get("seen"))


class Answer(BaseModel):
    """An answer."""

    text: str
    files: int


def agent(name: str, *tools: Any, **options: Any) -> Agent:
    options = {"system_prompt": "You look.", **options}
    return Agent(MODEL, tools=[*tools], name=name, **options)


clerk = agent("clerk", list_files, shout)
bare = Agent(MODEL, tools=[list_files])
on_bedrock = Agent("some.model", tools=[list_files])
greeting = agent("greeting", greet)
author = agent("author", ask_openai)
typed = agent("typed", list_files, structured_output_model=Answer)
quitting = agent("quitting", quit_all)
asking = agent("asking", if_allowed)
counted = agent("counted", count)
boss = agent("boss", clerk, system_prompt="You lead.")


@tool
def ask_anew(question: str) -> str:
    """Ask a clerk that is made for this."""
    return str(Agent(MODEL, tools=[list_files], name="clerk")(question))


leading = agent("leading", ask_anew, system_prompt="You lead.")


class Broken(Agent):
    misdeed: BaseException

    async def stream_async(self, *args: Any, **named: Any) -> Any:
        raise self.misdeed
        yield


class Deaf(Agent):
    async def stream_async(self, *args: Any, **named: Any) -> Any:
        said: Any = {"role": "assistant", "content": [{"text": "I know better."}]}
        yield {"result": AgentResult("end_turn", said, EventLoopMetrics(), {})}


def broken(misdeed: BaseException) -> Agent:
    made = Broken(MODEL, tools=[list_files])
    made.misdeed = misdeed
    return made


breaking, exiting = broken(ValueError("the agent is broken")), broken(SystemExit(3))
deaf = Deaf(MODEL, tools=[list_files])
nothing = {"agent": clerk}


def make_own() -> Agent:
    return agent("own", list_files)


def make_on(model: Any) -> Agent:
    return Agent(model, tools=[list_files])


async def make_later(llm: Any, tools: list[Any]) -> Agent:
    await asyncio.sleep(0)
    return Agent(llm, tools=tools)


def make_saved() -> Agent:
    manager = FileSessionManager("one", storage_dir="sessions")
    return agent("saved", list_files, session_manager=manager)


def first(task: Any) -> str:
    return f"Please: {task.id}"


def wrongly(task: Any) -> int:
    return 3
