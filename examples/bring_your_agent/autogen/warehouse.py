"""A warehouse: an AutoGen agent with its own tools, stock and memory."""

import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_core.model_context import BufferedChatCompletionContext
from autogen_ext.models.openai import OpenAIChatCompletionClient

STOCK = {"bolts": 40, "nuts": 12, "pipes": 3}


async def count_stock(item: str) -> str:
    """Say how many pieces of an item there are."""
    return f"{STOCK.get(item, 0)} {item}"


async def order_more(item: str, pieces: int) -> str:
    """Order more pieces of an item from the supplier."""
    return f"{pieces} {item} are on their way."


async def move_item(item: str, shelf: str) -> str:
    """Move an item to another shelf."""
    return f"{item} is on shelf {shelf} now."


model = OpenAIChatCompletionClient(model="gpt-4o-mini")
agent = AssistantAgent(
    "warehouse",
    model_client=model,
    tools=[count_stock, order_more, move_item],
    system_message="You run a warehouse. Use the tools, then answer in a sentence.",
    model_context=BufferedChatCompletionContext(buffer_size=20),
    max_tool_iterations=4,
)

if __name__ == "__main__":
    print(asyncio.run(agent.run(task="How many bolts are there?")).messages[-1])
