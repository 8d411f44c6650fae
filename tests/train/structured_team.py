"""A team of AutoGen's MagenticOne, whose orchestrator keeps a ledger in JSON."""

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import MagenticOneGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient

client = OpenAIChatCompletionClient(model="gpt-4o-mini", api_key="none")


def book_room(room: str) -> str:
    """Book a room."""
    return f"{room} is booked."


clerk = AssistantAgent(
    "clerk", client, tools=[book_room], system_message="You book rooms."
)
magentic = MagenticOneGroupChat([clerk], client, max_turns=1)
