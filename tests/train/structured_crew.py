"""Crews whose task wants a pydantic object."""

from typing import Any

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from pydantic import BaseModel


@tool("book_room")
def book_room(room: str) -> str:
    """Book a room."""
    return f"{room} is booked."


class Receipt(BaseModel):
    """Say what was done."""

    room: str
    booked: bool


def _crew(**form: Any) -> Crew:
    clerk = Agent(
        role="Clerk",
        goal="Book rooms.",
        backstory="You book.",
        llm=LLM(model="openai/gpt-4o-mini", api_key="none"),
        tools=[book_room],
    )
    task = Task(
        description="{task}", expected_output="A receipt.", agent=clerk, **form
    )
    return Crew(agents=[clerk], tasks=[task])


crew = _crew(output_pydantic=Receipt)
by_provider = _crew(response_model=Receipt)
