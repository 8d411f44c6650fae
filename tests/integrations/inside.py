"""An agent of each framework, and one of each that runs the others in its tool.

No agent's model is on OpenAI's client: a model that is asked says so.
"""

import asyncio
from typing import Any

from agentgym.core.task import Split
from agentgym.scenarios.registry import get_scenario

FRAMEWORKS = (
    "agent_framework",
    "autogen",
    "crewai",
    "langchain",
    "llamaindex",
    "openai_agents",
    "pydantic_ai",
    "smolagents",
    "strands",
)
WAITING = ("crewai", "smolagents")
"""Frameworks whose tools are not async."""
ASKED = "the provider was asked"
REAL = "the real tool ran"


def read_file(path: str) -> str:
    """Read a file.

    Args:
        path: Its path.
    """
    return REAL


async def ask(which: str) -> str:
    """Ask the agent of another framework."""
    made: Any = globals()[f"make_{which}"](read_file)
    run = globals()[f"run_{which}"]
    return str(await run(made, "Read it."))


def ask_and_wait(which: str) -> str:
    """Ask the agent of another framework.

    Args:
        which: The framework.
    """
    return asyncio.run(ask(which))


ask_and_wait.__name__ = "ask"


def first(task: Any) -> str:
    """Return the name of the framework that is asked in a task."""
    tasks = get_scenario("coding").tasks(Split.TRAIN, 0, len(FRAMEWORKS))
    return FRAMEWORKS[[each.id for each in tasks].index(task.id)]


def messages(task: Any) -> dict[str, Any]:
    """Return the input of a graph."""
    return {"messages": [("user", first(task))]}


def make_agent_framework(tool: Any) -> Any:
    from agent_framework import Agent, BaseChatClient, FunctionInvocationLayer

    class Provider(FunctionInvocationLayer, BaseChatClient):  # type: ignore[misc, type-arg]
        def _inner_get_response(self, **_: Any) -> Any:
            raise AssertionError(ASKED)

    return Agent(Provider(), name="asked", tools=[tool])


async def run_agent_framework(agent: Any, message: str) -> str:
    return str((await agent.run(message)).text)


def make_autogen(tool: Any) -> Any:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_core.models import ModelInfo
    from autogen_ext.models.replay import ReplayChatCompletionClient

    able = ModelInfo(
        vision=False,
        function_calling=True,
        json_output=True,
        family="unknown",
        structured_output=True,
    )
    model = ReplayChatCompletionClient([ASKED], model_info=able)
    return AssistantAgent("asked", model, tools=[tool], max_tool_iterations=3)


async def run_autogen(agent: Any, message: str) -> str:
    return str((await agent.run(task=message)).messages[-1].to_text())


def make_crewai(tool: Any) -> Any:
    from crewai import Agent, BaseLLM
    from crewai.tools import tool as as_tool

    class Provider(BaseLLM):
        def call(self, *args: Any, **named: Any) -> str:
            return ASKED

        def supports_function_calling(self) -> bool:
            return True

    told: Any = {"role": "asked", "goal": "Read.", "backstory": "You read."}
    model = Provider(model="none")
    return Agent(**told, llm=model, tools=[as_tool(tool.__name__)(tool)])


async def run_crewai(agent: Any, message: str) -> str:
    return str((await asyncio.to_thread(agent.kickoff, message)).raw)


def make_langchain(tool: Any) -> Any:
    from langchain.agents import create_agent
    from langchain_core.language_models import BaseChatModel

    class Provider(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "provider"

        def _generate(self, *args: Any, **named: Any) -> Any:
            raise AssertionError(ASKED)

        def bind_tools(self, tools: Any, **named: Any) -> Any:
            return self.bind(tools=tools)

    return create_agent(Provider(), [tool], name="asked")


async def run_langchain(agent: Any, message: str) -> str:
    state = await agent.ainvoke({"messages": [("user", message)]})
    return str(state["messages"][-1].text)


def make_llamaindex(tool: Any) -> Any:
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.llms.openai import OpenAI

    where = {"api_base": "http://127.0.0.1:9", "api_key": "none", "max_retries": 0}
    return FunctionAgent(name="asked", tools=[tool], llm=OpenAI("gpt-4o", **where))


async def run_llamaindex(agent: Any, message: str) -> str:
    return str(await agent.run(message))


def make_openai_agents(tool: Any) -> Any:
    from agents import Agent, Model, function_tool

    class Provider(Model):
        async def get_response(self, *args: Any, **named: Any) -> Any:
            raise AssertionError(ASKED)

        def stream_response(self, *args: Any, **named: Any) -> Any:
            raise AssertionError(ASKED)

    return Agent("asked", model=Provider(), tools=[function_tool(tool)])


async def run_openai_agents(agent: Any, message: str) -> str:
    from agents import Runner

    return str((await Runner.run(agent, message)).final_output)


def make_pydantic_ai(tool: Any) -> Any:
    from pydantic_ai import Agent
    from pydantic_ai.models.function import FunctionModel

    def provider(*_: Any) -> Any:
        raise AssertionError(ASKED)

    return Agent(FunctionModel(provider), name="asked", tools=[tool])


async def run_pydantic_ai(agent: Any, message: str) -> str:
    return str((await agent.run(message)).output)


def make_smolagents(tool: Any) -> Any:
    from smolagents import Model, ToolCallingAgent
    from smolagents import tool as as_tool

    class Provider(Model):
        def generate(self, *args: Any, **named: Any) -> Any:
            raise AssertionError(ASKED)

    return ToolCallingAgent([as_tool(tool)], Provider(), verbosity_level=0)


async def run_smolagents(agent: Any, message: str) -> str:
    return str(await asyncio.to_thread(agent.run, message))


def make_strands(tool: Any) -> Any:
    from strands import Agent
    from strands import tool as as_tool
    from strands.models import Model

    class Provider(Model):
        def update_config(self, **named: Any) -> None: ...

        def get_config(self) -> Any:
            return {}

        def structured_output(self, *args: Any, **named: Any) -> Any:
            raise AssertionError(ASKED)

        def stream(self, *args: Any, **named: Any) -> Any:
            raise AssertionError(ASKED)

    named: Any = {"name": "asked", "callback_handler": None}
    return Agent(model=Provider(), tools=[as_tool(tool)], **named)


async def run_strands(agent: Any, message: str) -> str:
    return str(await agent.invoke_async(message))


def load() -> None:
    """Import all frameworks, which would block an event loop in the agent's run."""
    for name in FRAMEWORKS:
        globals()[f"make_{name}"](read_file)


def outer_graph() -> Any:
    load()
    return outer_node()


def outer_node() -> Any:
    """Return a graph that asks the agent in a node."""
    from langgraph.graph import END, START, MessagesState, StateGraph

    async def node(state: Any) -> dict[str, Any]:
        said = await ask(state["messages"][-1].text)
        return {"messages": [("ai", said)]}

    built = StateGraph(MessagesState).add_node("ask", node)
    return built.add_edge(START, "ask").add_edge("ask", END).compile()


def _outer(name: str) -> Any:
    """Return a factory of an agent that asks the other agent in its tool."""

    def made() -> Any:
        load()
        return globals()[f"make_{name}"](ask_and_wait if name in WAITING else ask)

    return made


globals().update({f"outer_{name}": _outer(name) for name in FRAMEWORKS})
