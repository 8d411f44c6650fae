"""Agents and teams as users of AutoGen write them."""

from collections.abc import Callable
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Team
from autogen_agentchat.conditions import (
    HandoffTermination,
    MaxMessageTermination,
    TextMentionTermination,
)
from autogen_agentchat.teams import RoundRobinGroupChat, Swarm


def make_agent(llm: Any, tools: list[Any], *, streams: bool = False) -> AssistantAgent:
    return AssistantAgent(
        "clerk",
        llm,
        tools=tools,
        system_message="You note.",
        model_client_stream=streams,
        max_tool_iterations=20,
    )


def make_streaming_agent(llm: Any, tools: list[Any]) -> AssistantAgent:
    return make_agent(llm, tools, streams=True)


def make_pair(llm: Any, tools: list[Any]) -> Team:
    """Return two who take turns until one is done."""
    planner = AssistantAgent("planner", llm, system_message="You plan.")
    worker = AssistantAgent("worker", llm, tools=tools, max_tool_iterations=20)
    end = TextMentionTermination("DONE") | MaxMessageTermination(30)
    return RoundRobinGroupChat([planner, worker], termination_condition=end)


def make_endless_pair(llm: Any, tools: list[Any]) -> Team:
    planner = AssistantAgent("planner", llm, system_message="You plan.")
    worker = AssistantAgent("worker", llm, tools=tools, max_tool_iterations=20)
    return RoundRobinGroupChat([planner, worker])


def make_swarm(llm: Any, tools: list[Any]) -> Team:
    """Return two of whom the first hands over to the second."""
    desk = AssistantAgent("desk", llm, handoffs=["worker"], system_message="Hand over.")
    worker = AssistantAgent("worker", llm, tools=tools, max_tool_iterations=20)
    end = TextMentionTermination("DONE") | HandoffTermination(target="user")
    return Swarm([desk, worker], termination_condition=end)


def make_nothing(llm: Any, tools: list[Any]) -> Callable[[], None]:
    return lambda: None
