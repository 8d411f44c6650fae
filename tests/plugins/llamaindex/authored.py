"""Agents of LlamaIndex as their authors wrote them, for no training."""

import asyncio
from typing import Any

from llama_index.core.agent.workflow import (
    AgentOutput,
    AgentWorkflow,
    FunctionAgent,
    ReActAgent,
)
from llama_index.core.llms import ChatMessage, LLMMetadata
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
from llama_index.llms.openai import OpenAI
from openai import AsyncOpenAI
from pydantic import BaseModel

LLM = OpenAI(model="gpt-4o")
REAL = "the real tool ran"


def list_files() -> str:
    """List the files."""
    return REAL


async def shout(word: str) -> str:
    """Say it aloud."""
    return word.upper()


async def greet(ctx: Context, word: str) -> str:
    """Greet the user."""
    asked = await ctx.store.get("user_msg_str")
    return f"{word}, {'you' if asked else 'nobody'}!"


async def ask_openai(question: str) -> str:
    """Ask OpenAI's own client."""
    told = await AsyncOpenAI().chat.completions.create(
        model="gpt-4o", messages=[{"role": "user", "content": question}]
    )
    return told.choices[0].message.content or ""


async def ask_llm(question: str) -> str:
    """Ask another model."""
    return str(await OpenAI(model="gpt-4o-mini").acomplete(question))


def quit_all() -> str:
    """Quit."""
    raise SystemExit(3)


class Answer(BaseModel):
    """An answer."""

    text: str
    files: int


async def count(ctx: Context) -> str:
    """Count the calls of this tool."""
    seen = (await ctx.store.get("state"))["seen"]
    seen.append("once")
    return f"{len(seen)}"


def agent(name: str, *tools: Any, **options: Any) -> FunctionAgent:
    options = {"system_prompt": "You look.", "llm": LLM, **options}
    return FunctionAgent(name=name, description=name, tools=[*tools], **options)


class Served(OpenAI):
    """A model that asks its server what it is able to do."""

    @property
    def metadata(self) -> LLMMetadata:
        raise ConnectionError("The server does not run.")


clerk = agent("clerk", list_files, shout)
served = agent("served", list_files, llm=Served(model="gpt-4o"))
bare = FunctionAgent(tools=[list_files], llm=LLM)
whole = agent("whole", list_files, streaming=False)
named = agent("named", FunctionTool.from_defaults(shout, name="my_shout"))
greeting = agent("greeting", greet)
author = agent("author", ask_openai, ask_llm)
typed = agent("typed", list_files, output_cls=Answer)
quitting = agent("quitting", quit_all)
desk = AgentWorkflow(
    agents=[agent("front", can_handoff_to=["back"]), agent("back", list_files)],
    root_agent="front",
)
counted = AgentWorkflow(
    agents=[agent("one", list_files, count)], initial_state={"seen": []}
)
by_text = ReActAgent(name="by_text", tools=[list_files], llm=LLM)


async def ask_clerk(question: str) -> str:
    """Ask the clerk."""
    return str(await clerk.run(question))


async def if_allowed(ctx: Context) -> str:
    """List the files, if a person allows it."""
    asked = InputRequiredEvent(prefix="May I?", user="Ann")
    event = await ctx.wait_for_event(
        HumanResponseEvent, waiter_event=asked, requirements={"user": "Ann"}
    )
    return f"{event.response}: {REAL}"


boss = agent("boss", ask_clerk, system_prompt="You lead.")
asking = agent("asking", if_allowed)


class Broken(FunctionAgent):
    misdeed: Any = None

    async def take_step(self, *args: Any, **named: Any) -> AgentOutput:
        raise self.misdeed


class Deaf(FunctionAgent):
    async def take_step(self, *args: Any, **named: Any) -> AgentOutput:
        said = ChatMessage(role="assistant", content="I know better.")
        return AgentOutput(response=said, current_agent_name=self.name)


breaking = Broken(
    llm=LLM, tools=[list_files], misdeed=ValueError("the agent is broken")
)
exiting = Broken(llm=LLM, tools=[list_files], misdeed=SystemExit(3))
deaf = Deaf(llm=LLM, tools=[list_files])
nothing = {"agent": clerk}


def make_own() -> FunctionAgent:
    return agent("own", list_files)


def make_on(llm: Any) -> FunctionAgent:
    return agent("on", list_files, llm=llm)


async def make_later(llm: Any, tools: list[Any]) -> FunctionAgent:
    await asyncio.sleep(0)
    return agent("later", *tools, llm=llm)


def first(task: Any) -> str:
    return f"Please: {task.id}"


def wrongly(task: Any) -> int:
    return 3
