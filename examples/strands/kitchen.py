"""A restaurant: an agent of Strands with three tools."""

from strands import Agent, tool
from strands.models.openai import OpenAIModel

SHELF = {"flour": 12, "eggs": 30, "butter": 4}
model = OpenAIModel(model_id="gpt-5-mini")


@tool
def stock(item: str) -> str:
    """Look up how much of an item is there."""
    return f"{SHELF.get(item, 0)} of {item}"


@tool
def reserve_table(name: str, guests: int) -> str:
    """Reserve a table for guests."""
    return f"A table for {guests}, {name}."


@tool
def order(item: str, count: int) -> str:
    """Order items from the market."""
    return f"Ordered {count} of {item}."


kitchen = Agent(
    model,
    name="kitchen",
    system_prompt="You run a restaurant. Use the tools, then answer shortly.",
    tools=[stock, reserve_table, order],
)

if __name__ == "__main__":
    print(kitchen("How much flour is there?"))
