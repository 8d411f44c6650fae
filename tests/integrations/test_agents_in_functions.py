"""Agents that the functions of another agent's tools run, by frameworks' own pages."""

from collections.abc import Callable
from typing import Any

import pytest

from agentgym.cli.inspect import tools_of, tried

pytestmark = pytest.mark.slow  # each imports a framework


def pay_bill(bill: str) -> str:
    """Pay a bill."""
    raise AssertionError("it really ran")


def find_bill(number: str) -> str:
    """Find a bill."""
    raise AssertionError("it really ran")


def of_agent_framework() -> Any:
    from agent_framework import Agent, tool
    from agent_framework.openai import OpenAIChatCompletionClient

    client = OpenAIChatCompletionClient(model="gpt-5", api_key="none")
    payer = Agent(client, name="payer", tools=[tool(pay_bill)])
    writer = Agent(client, name="writer")

    @tool
    async def ask_payer(query: str) -> str:
        """Let the payer do it."""
        return (await payer.run(query)).text

    @tool
    async def summarize(text: str) -> str:
        """Make a text shorter."""
        return (await writer.run(text)).text

    return Agent(client, name="desk", tools=[tool(find_bill), ask_payer, summarize])


def of_openai_agents() -> Any:
    from agents import Agent, Runner, function_tool

    payer = Agent(name="payer", tools=[function_tool(pay_bill)])
    writer = Agent(name="writer")

    @function_tool
    async def ask_payer(query: str) -> str:
        """Let the payer do it."""
        return str((await Runner.run(payer, query)).final_output)

    @function_tool
    async def summarize(text: str) -> str:
        """Make a text shorter."""
        return str((await Runner.run(writer, text)).final_output)

    tools = [function_tool(find_bill), ask_payer, summarize]
    return Agent(name="desk", tools=tools)


def of_pydantic_ai() -> Any:
    from pydantic_ai import Agent

    payer = Agent("test", name="payer", tools=[pay_bill])
    writer = Agent("test", name="writer")

    async def ask_payer(query: str) -> str:
        """Let the payer do it."""
        return (await payer.run(query)).output

    async def summarize(text: str) -> str:
        """Make a text shorter."""
        return (await writer.run(text)).output

    return Agent("test", name="desk", tools=[find_bill, ask_payer, summarize])


@pytest.mark.parametrize("make", [of_agent_framework, of_openai_agents, of_pydantic_ai])
def test_their_tools_are_found_and_one_without_tools_is_a_model(
    make: Callable[[], Any],
) -> None:
    framework = make.__name__.removeprefix("of_")
    report = tried(f"{__name__}:{make.__name__}")
    assert report.framework == framework
    assert {role.name for role in report.roles} == {"desk", "payer"}
    assert set(report.bound) == {"find_bill", "summarize", "pay_bill"}
    assert report.own == {"ask_payer": "runs: it passes control on"}
    assert {tool.spec.name for tool in tools_of(report)} == set(report.bound)
