"""The desk of a garage: two agents of LlamaIndex, one of which looks up cars."""

from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.llms.openai import OpenAI

OWNERS = {"B-AB 12": "Ann", "M-XY 7": "Tom", "K-CD 345": "Eve"}
llm = OpenAI(model="gpt-5-mini")


def find_owner(plate: str) -> str:
    """Look up who owns the car with a number plate."""
    return OWNERS.get(plate, "unknown")


def order_part(part: str, count: int) -> str:
    """Order spare parts."""
    return f"Ordered {count} of {part}."


def book_repair(plate: str, day: str) -> str:
    """Book a repair of a car."""
    return f"{plate} comes on {day}."


desk = FunctionAgent(
    name="desk",
    description="Talks to customers, looks up cars and books repairs.",
    system_prompt="You are the desk of a garage. Use the tools, then answer shortly.",
    tools=[find_owner, book_repair],
    can_handoff_to=["store"],
    llm=llm,
)
store = FunctionAgent(
    name="store",
    description="Orders spare parts.",
    system_prompt="You run the store of a garage. Use the tools, then answer shortly.",
    tools=[order_part],
    can_handoff_to=["desk"],
    llm=llm,
)
garage = AgentWorkflow(agents=[desk, store], root_agent="desk")


async def main() -> None:
    """Ask the garage."""
    print(await garage.run("Who owns B-AB 12?"))


if __name__ == "__main__":
    import asyncio

    asyncio.run(main())
