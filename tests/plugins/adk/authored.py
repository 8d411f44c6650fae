"""Agents of Google ADK as their authors wrote them, for no training."""

import asyncio
from typing import Any

from google.adk.agents import LlmAgent, SequentialAgent
from google.adk.events import Event
from google.adk.tools import AgentTool, BaseTool, ToolContext, google_search
from google.genai import types
from openai import AsyncOpenAI
from pydantic import BaseModel

MODEL = "gemini-2.5-flash"
REAL = "the real tool ran"


def list_files() -> str:
    """List the files."""
    return REAL


async def shout(word: str) -> dict[str, str]:
    """Say it aloud."""
    return {"status": "ok", "said": word.upper()}


def read_status(
    tool: BaseTool, args: dict[str, Any], tool_context: ToolContext, tool_response: Any
) -> None:
    """Read a result as the dict that the tool returns."""
    assert tool_response["status"] == "ok"


def greet(word: str, tool_context: ToolContext) -> str:
    """Greet the user."""
    tool_context.state["greeted"] = tool_context.state.get("greeted", 0) + 1
    return f"{word}, you! ({tool_context.state['greeted']})"


async def ask_openai(question: str) -> str:
    """Ask OpenAI's own client."""
    told = await AsyncOpenAI().chat.completions.create(
        model="gpt-4o", messages=[{"role": "user", "content": question}]
    )
    return told.choices[0].message.content or ""


class Answer(BaseModel):
    """An answer."""

    text: str
    files: int


def agent(name: str, *tools: Any, **options: Any) -> LlmAgent:
    options = {"instruction": "You look.", "model": MODEL, **options}
    return LlmAgent(name=name, tools=[*tools], description=name, **options)


clerk = agent("clerk", list_files, shout)
bare = LlmAgent(name="bare", model=MODEL, tools=[list_files])
greeting = agent("greeting", greet)
noting = agent("noting", shout, after_tool_callback=read_status)
author = agent("author", ask_openai)
typed = agent("typed", output_schema=Answer)
searching = agent("searching", google_search)
boss = agent("boss", AgentTool(agent("helper", list_files)), instruction="You lead.")
desk = agent("desk", sub_agents=[agent("back", list_files)])
chain = SequentialAgent(
    name="chain", sub_agents=[agent("first", list_files), agent("second")]
)


class Broken(LlmAgent):
    misdeed: Any = None

    async def _run_async_impl(self, ctx: Any) -> Any:
        raise self.misdeed
        yield


class Deaf(LlmAgent):
    async def _run_async_impl(self, ctx: Any) -> Any:
        said = types.Content(role="model", parts=[types.Part(text="I know better.")])
        yield Event(author=self.name, content=said)


BROKEN = ValueError("the agent is broken")
breaking = Broken(name="breaking", model=MODEL, tools=[list_files], misdeed=BROKEN)
deaf = Deaf(name="deaf", model=MODEL, tools=[list_files])
nothing = {"agent": clerk}


def make_own() -> LlmAgent:
    return agent("own", list_files)


def make_on(model: Any) -> LlmAgent:
    return agent("on", list_files, model=model)


async def make_later(llm: Any, tools: list[Any]) -> LlmAgent:
    await asyncio.sleep(0)
    return agent("later", *tools, model=llm)


def first(task: Any) -> str:
    return f"Please: {task.id}"
