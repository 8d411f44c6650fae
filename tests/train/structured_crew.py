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


def _member(role: str, goal: str, *tools: Any) -> Agent:
    llm = LLM(model="openai/gpt-4o-mini", api_key="none")
    story = f"You {goal.lower()}"
    return Agent(role=role, goal=goal, backstory=story, llm=llm, tools=[*tools])


clerk = _member("Clerk", "Book rooms.", book_room)
task = Task(
    description="{task}",
    expected_output="A receipt.",
    agent=clerk,
    output_pydantic=Receipt,
)
crew = Crew(agents=[clerk], tasks=[task])
