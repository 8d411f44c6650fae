"""An agent and a crew of CrewAI's as somebody wrote them, and how they are run."""

import asyncio
from typing import Any

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool


@tool
def list_files(path: str = ".") -> str:
    """List the files in a folder."""
    return "app.py\ntests/test_app.py"


agent = Agent(
    role="Clerk",
    goal="Help.",
    backstory="Slow.",
    llm=LLM(model="instant", provider="openai", custom_openai=True),
    tools=[list_files],
)
crew = Crew(
    agents=[agent],
    tasks=[Task(description="{task}", expected_output="A word.", agent=agent)],
)


async def run() -> Any:
    """Run an agent as CrewAI does."""
    return await asyncio.to_thread(agent.copy().kickoff, "List the files.")


async def run_crew() -> Any:
    """Run a crew as CrewAI does."""
    told = {"task": "List the files."}
    return await asyncio.to_thread(crew.copy().kickoff, told)


RUNS = {"crewai": run, "crewai-crew": run_crew}
