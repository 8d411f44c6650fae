"""A hotel: a hand-off workflow of Microsoft Agent Framework, with two agents."""

import asyncio

from agent_framework import Agent, tool
from agent_framework.openai import OpenAIChatClient
from agent_framework.orchestrations import HandoffBuilder

FREE = {"single": 4, "double": 2, "suite": 1}


@tool
def count_rooms(kind: str) -> str:
    """Say how many rooms of a kind are free."""
    return f"{FREE.get(kind, 0)} {kind} rooms are free."


@tool
def book_room(kind: str, nights: int) -> str:
    """Book a room of a kind for some nights."""
    return f"A {kind} room for {nights} nights is booked."


@tool
async def bring(thing: str, room: int) -> str:
    """Bring a thing to a room."""
    return f"{thing} for room {room} is on the way."


def hotel(
    client: OpenAIChatClient, name: str, instructions: str, *tools: object
) -> Agent:
    """Return one agent of the hotel."""
    return Agent(
        client,
        instructions,
        name=name,
        tools=list(tools),
        require_per_service_call_history_persistence=True,
    )


client = OpenAIChatClient(model="gpt-5-mini")
desk = hotel(
    client,
    "desk",
    "You are the desk of a hotel. Use the tools; guests' wishes go to the porter.",
    *(count_rooms, book_room),
)
porter = hotel(client, "porter", "You bring things to rooms. Use the tool.", bring)
workflow = (
    HandoffBuilder(name="hotel", participants=[desk, porter])
    .with_start_agent(desk)
    .build()
)


async def main() -> None:
    """Ask one thing, with OpenAI's model."""
    print(await workflow.run("Is a suite free?"))


if __name__ == "__main__":
    asyncio.run(main())
