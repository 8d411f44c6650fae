"""Agents, tasks and crews as their authors wrote them, for no training."""

import sys
from collections.abc import Callable
from typing import Any

from crewai import Agent, Crew, Process, Task
from crewai.agent.planning_config import PlanningConfig
from crewai.project import CrewBase, agent, crew, task
from crewai.state.checkpoint_config import CheckpointConfig
from crewai.tools import BaseTool, tool
from openai import OpenAI
from pydantic import BaseModel

MODEL = "openai/gpt-4o"
REAL = "the real tool ran"


@tool
def note(text: str) -> str:
    """Write something down."""
    return REAL


@tool("Shout out")
def shout(word: str) -> str:
    """Say it aloud."""
    return word.upper()


@tool
async def later(word: str) -> str:
    """Say it later."""
    return f"{word} later"


@tool
def quit_all() -> str:
    """Quit."""
    raise SystemExit(3)


@tool
def count(thing: Callable[[], int]) -> str:
    """Count."""
    return str(thing())


class Once(BaseTool):
    name: str = "once"
    description: str = "Once."

    def _run(self) -> str:
        return "once and no more"


def person(role: str = "Scribe", *tools: Any, **options: Any) -> Agent:
    told: dict[str, Any] = {"goal": "Note.", "backstory": "Slow.", "llm": MODEL}
    return Agent(role=role, tools=list(tools), **{**told, **options})


def job(text: str, who: Agent | None = None, **options: Any) -> Task:
    return Task(description=text, expected_output="A word.", agent=who, **options)


scribe = person("Scribe", note, shout, later, Once(max_usage_count=1))
critic = person("Critic")
work = job("Do this: {task}", scribe)
judgement = job("Judge it.", critic, context=[work])
pair = Crew(agents=[scribe, critic], tasks=[work, judgement], verbose=True)
twins = Crew(
    agents=[first := person("Twin", shout), second := person("Twin", note)],
    tasks=[job("{task}", second)],
)
led = Crew(
    agents=[scribe],
    tasks=[job("{task}")],
    process=Process.hierarchical,
    manager_llm=MODEL,
)
headed = Crew(
    agents=[scribe],
    tasks=[job("{task}")],
    process=Process.hierarchical,
    manager_agent=person("Head", allow_delegation=True),
)
topical = Crew(agents=[scribe], tasks=[job("Write of {topic} for {reader}.", scribe)])
silent = Crew(agents=[scribe], tasks=[job("Do it.", scribe)])
asking = Crew(
    agents=[scribe], tasks=[job("{task}", scribe, human_input=True)], planning=True
)
writing = Crew(
    agents=[scribe],
    tasks=[job("{task}", scribe, output_file="report.md")],
    output_log_file="crew_log.txt",
    checkpoint=CheckpointConfig(location="crew_checkpoints"),
)
planning = person("Planner", note, planning_config=PlanningConfig(llm=MODEL))
quitting = person("Quitter", quit_all)
counting = person("Counter", count)


class Answer(BaseModel):
    text: str


structured = Crew(
    agents=[scribe], tasks=[job("{task}", scribe, output_pydantic=Answer)]
)
in_json = Crew(agents=[scribe], tasks=[job("{task}", scribe, output_json=Answer)])


class Own(Agent):
    """An agent whose author asks a model by OpenAI's own client, or none."""

    misdeed: str = ""

    def kickoff(self, messages: Any, *args: Any, **named: Any) -> Any:
        print("I was asked", file=sys.stdout)  # noqa: T201
        match self.misdeed:
            case "raise":
                raise ValueError("the agent is broken")
            case "exit":
                raise SystemExit(3)
        said = "I know better."
        if self.misdeed == "":
            told = OpenAI().chat.completions.create(model="gpt-4o", messages=messages)
            said = told.choices[0].message.content or ""
        return type("Output", (), {"raw": said, "messages": [*messages]})()


def own(misdeed: str = "") -> Own:
    return Own(role="Own", goal="?", backstory="?", llm=MODEL, misdeed=misdeed)


asker, breaking, exiting, deaf = own(), own("raise"), own("exit"), own("silence")


@CrewBase
class Office:
    """A crew in CrewAI's own way."""

    agents_config: Any = "config/agents.yaml"
    tasks_config: Any = "config/tasks.yaml"

    @agent
    def scribe(self) -> Agent:
        return Agent(config=self.agents_config["scribe"], llm=MODEL, tools=[note])

    @task
    def work(self) -> Task:
        scribe: Any = self.scribe
        options: Any = {"config": self.tasks_config["work"], "agent": scribe()}
        return Task(**options)

    @crew
    def crew(self) -> Crew:
        return Crew(agents=self.agents, tasks=self.tasks)


@CrewBase
class Burnt(Office):
    """One whose files are gone."""

    agents_config = "config/gone.yaml"


def make_own() -> Agent:
    return person("Scribe", note)


def make_on(llm: Any) -> Agent:
    return person("Scribe", note, llm=llm)


async def make_later(llm: Any, tools: list[Any]) -> Agent:
    return person("Scribe", *tools, llm=llm)


def topic(given: Any) -> dict[str, str]:
    return {"topic": given.id, "reader": "all"}


def told(given: Any) -> str:
    return f"Please: {given.id}"
