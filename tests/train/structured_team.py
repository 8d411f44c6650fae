"""A MagenticOne of one worker, whose orchestrator asks for ledgers."""

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import MagenticOneGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient


def book_room(room: str) -> str:
    """Book a room."""
    return f"{room} is booked."


client = OpenAIChatCompletionClient(model="gpt-4o-mini", api_key="none")
clerk = AssistantAgent("clerk", client, tools=[book_room], description="Books rooms.")
magentic = MagenticOneGroupChat([clerk], client, max_turns=2)
