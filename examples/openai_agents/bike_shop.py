"""A bike shop: three agents of the OpenAI Agents SDK that hand over to each other."""

import asyncio

from agents import (
    Agent,
    GuardrailFunctionOutput,
    RunContextWrapper,
    Runner,
    function_tool,
    input_guardrail,
)

STOCK = {"tires": 14, "chains": 6, "bells": 30}


@function_tool
def count_stock(part: str) -> str:
    """Say how many pieces of a part there are."""
    return f"{STOCK.get(part, 0)} {part}"


@function_tool
def order_part(part: str, pieces: int) -> str:
    """Order pieces of a part from the supplier."""
    return f"{pieces} {part} are on their way."


@function_tool
async def book_repair(bike: str, day: str) -> str:
    """Book the repair of a bike on a day."""
    return f"The {bike} is repaired on {day}."


@input_guardrail
def is_short(
    context: RunContextWrapper[None], agent: Agent, text: str | list
) -> GuardrailFunctionOutput:
    """Refuse requests that are longer than a page."""
    length = len(str(text))
    return GuardrailFunctionOutput({"length": length}, length > 2_000)


parts = Agent(
    name="parts",
    handoff_description="Knows the stock, and orders parts.",
    instructions="You sell parts. Use the tools, then answer in a sentence.",
    tools=[count_stock, order_part],
)
repairs = Agent(
    name="repairs",
    handoff_description="Books repairs.",
    instructions="You book repairs. Use the tool, then answer in a sentence.",
    tools=[book_repair],
    handoffs=[parts],
)
parts.handoffs.append(repairs)
desk = Agent(
    name="desk",
    instructions="You are the desk of a bike shop. Hand over to who can help.",
    handoffs=[parts, repairs],
    input_guardrails=[is_short],
)


async def main() -> None:
    """Ask one thing, with OpenAI's model."""
    result = await Runner.run(desk, "How many bells are there?")
    print(result.final_output)


if __name__ == "__main__":
    asyncio.run(main())
