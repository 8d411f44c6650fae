"""A MagenticOneGroupChat as its author wrote it: a ledger decides who works next."""

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import MagenticOneGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient

PARTS = [
    *("bells", "bolts", "chains", "gears", "hubs", "keys", "lamps", "locks"),
    *("nuts", "pedals", "pumps", "rims", "seats", "spokes", "stands", "tyres"),
]
client = OpenAIChatCompletionClient(model="gpt-4o", api_key="of its author")


async def count_parts(part: str) -> str:
    """Count how many there are of a part."""
    return f"There are 4 {part}."


keeper = AssistantAgent(
    "keeper",
    client,
    tools=[count_parts],
    system_message="You keep the parts. Count those that you are asked for.",
    description="Counts parts.",
)
team = MagenticOneGroupChat([keeper], client, max_turns=1, max_stalls=2)
