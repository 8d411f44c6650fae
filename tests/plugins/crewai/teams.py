"""A scenario with a tool that crashes, and factories of agents, tasks and crews."""

import sys
from typing import Any

from crewai import Agent, Crew, Process, Task
from crewai.agents.agent_executor import AgentExecutor
from openai.types.chat import chat_completion

from agentgym import Environment, Reward, Scenario, Split, tool
from agentgym import Task as Job
from agentgym.core.tools import tool_specs
from agentgym.errors import ToolError


class Desk(Environment):
    """Writes down what it is told, in order."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    @tool
    def note(self, text: str) -> str:
        """Write something down."""
        self.notes.append(text)
        return f"{len(self.notes)} notes"

    @tool
    def refuse(self) -> str:
        """Refuse."""
        raise ToolError("no")

    @tool
    def jam(self) -> str:
        """Jam."""
        raise ZeroDivisionError("the desk is broken")


class DeskScenario(Scenario):
    name = "desk"
    description = "A desk."
    difficulty = "beginner"
    estimated_time = "seconds"
    max_turns = 8

    def system_prompt(self) -> str:
        return "You take notes."

    def tools(self) -> list[Any]:
        return tool_specs(Desk)

    def tasks(self, split: Split, seed: int, count: int) -> list[Job]:
        return [
            Job(
                id=f"{split}-{seed}-{number}",
                split=split,
                seed=seed,
                family="note",
                level=1,
                instruction="Note {this}.",
            )
            for number in range(count)
        ]

    def create_environment(self, task: Job) -> Desk:
        return Desk()

    def calculate_reward(
        self, task: Job, environment: Environment, trajectory: Any
    ) -> Reward:
        assert isinstance(environment, Desk)
        noted = {f"{n} {text}": 1.0 for n, text in enumerate(environment.notes)}
        return Reward(len(noted) / 10, bool(noted), noted)


def make_agent(llm: Any, tools: list[Any]) -> Agent:
    return Agent(role="Scribe", goal="Note.", backstory="Slow.", llm=llm, tools=tools)


def make_task(llm: Any, tools: list[Any]) -> Task:
    return Task(
        description="Do this: {task}",
        expected_output="A word.",
        agent=make_agent(llm, tools),
    )


def make_crew(llm: Any, tools: list[Any]) -> Crew:
    """Return two agents of which only the first has tools; roles as YAML has them."""
    scribe = Agent(
        role="Head\nScribe\n", goal="Note.", backstory="Slow.", llm=llm, tools=tools
    )
    critic = Agent(role="Critiqué", goal="Judge.", backstory="Fast.", llm=llm)
    return Crew(
        agents=[scribe, critic],
        tasks=[
            Task(description="{task}", expected_output="A word.", agent=scribe),
            Task(description="Judge it.", expected_output="A word.", agent=critic),
        ],
    )


def make_ready_crew(llm: Any, tools: list[Any]) -> Crew:
    """Return a crew where all that threads would build at once is built."""
    assert "_flow_definition" in vars(AgentExecutor)
    assert "openai.resources.chat" in sys.modules
    assert chat_completion.Choice.__pydantic_complete__
    return make_crew(llm, tools)


def make_hierarchy(llm: Any, tools: list[Any]) -> Crew:
    return Crew(
        agents=[make_agent(llm, tools)],
        tasks=[Task(description="{task}", expected_output="A word.")],
        process=Process.hierarchical,
        manager_llm=llm,
    )


def make_paid_agent(llm: Any, tools: list[Any]) -> Agent:
    return make_agent("openai/gpt-4o", tools)


def make_nothing(llm: Any, tools: list[Any]) -> str:
    return "an agent"


def make_delegating(llm: Any, tools: list[Any]) -> Crew:
    """Return a lead who hands work to a clerk; only the clerk has tools."""
    lead = Agent(
        role="Lead", goal="Lead.", backstory="Calm.", llm=llm, allow_delegation=True
    )
    clerk = Agent(role="Clerk", goal="Add.", backstory="Fast.", llm=llm, tools=tools)
    task = Task(description="{task}", expected_output="A number.", agent=lead)
    return Crew(agents=[lead, clerk], tasks=[task])
