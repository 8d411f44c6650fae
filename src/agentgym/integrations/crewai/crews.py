"""Agents, tasks and crews: building them, looking into them, changing their model."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from crewai import Agent, Crew, Task
from crewai.utilities.i18n import I18N_DEFAULT
from crewai.utilities.string_utils import sanitize_tool_name

from agentgym.core.openai import DEFAULT_AGENT
from agentgym.core.tools import ToolSpec
from agentgym.errors import UnsupportedError, UsageError
from agentgym.integrations.base import AgentRole
from agentgym.integrations.registry import load_factory

PLACE = "{task}"
"""Where a task's description says what the user says."""


def build(
    factory: str | None,
    llm: Any,
    tools: list[Any],
    *,
    system_prompt: str,
    max_turns: int,
) -> Agent | Crew:
    """Return what a user's factory builds on ``llm``, or the agent of a scenario.

    Raises:
        UsageError: The factory cannot be imported, or what it built does not use
            ``llm`` or cannot be told what to do.
        UnsupportedError: It built something else.
    """
    if factory is None:
        return Agent(
            role=DEFAULT_AGENT,
            goal="Do what the user asks.",
            backstory=system_prompt,
            llm=llm,
            tools=tools,
            max_iter=max_turns,
            max_retry_limit=0,
            respect_context_window=False,
            use_better_compaction=False,
        )
    built = load_factory(factory)(llm, tools)
    agents = members(built, factory)
    if not any(isinstance(agent.llm, type(llm)) for agent in agents):
        raise UsageError(
            f"No agent of what {factory} returned has the model that it was given. "
            "Write Agent(llm=llm, ...)."
        )
    if isinstance(built, Agent):
        return built
    crew = built if isinstance(built, Crew) else Crew(agents=[*agents], tasks=[built])
    texts = [f"{task.description} {task.expected_output}" for task in crew.tasks]
    if not any(PLACE in text for text in texts):
        raise UsageError(
            f"No task of what {factory} returned says what is to be done. Write "
            f"{PLACE} in a description, where the user's words belong."
        )
    return crew


def members(found: Any, origin: str) -> list[Agent]:
    """Return the agents of an Agent, a Task or a Crew, each once.

    Raises:
        UnsupportedError: ``found`` is none of these, or has no agent of CrewAI's.
    """
    if isinstance(found, Agent):
        return [found]
    if not isinstance(found, Task | Crew):
        raise UnsupportedError(
            f"{origin} gave a {type(found).__name__}, not an Agent, Task or Crew of "
            "CrewAI."
        )
    if isinstance(found, Task):
        named = [found.agent]
    else:
        workers = [task.agent for task in found.tasks]
        named = [*found.agents, *workers, found.manager_agent]
    agents: list[Agent] = []
    for agent in named:
        if isinstance(agent, Agent) and all(agent is not other for other in agents):
            agents.append(agent)
    if not agents:
        raise UnsupportedError(
            f"{origin} gave a {type(found).__name__} without an agent. Write "
            f"{type(found).__name__}({'agent=' if named == [None] else 'agents='}...)."
        )
    return agents


def roles(found: Any) -> list[AgentRole]:
    """Return the agents of an Agent, a Task or a Crew, with all that each may call."""
    tasks = found.tasks if isinstance(found, Crew) else [found]
    return [
        AgentRole(
            name=agent.role,
            system_prompt=I18N_DEFAULT.slice("role_playing").format(
                role=agent.role, backstory=agent.backstory, goal=agent.goal
            ),
            tools=list(_tools(agent, tasks).values()),
            model=agent.llm,
        )
        for agent in members(found, repr(found))
    ]


def _tools(agent: Agent, tasks: list[Any]) -> dict[str, ToolSpec]:
    given = list(agent.tools or [])
    for task in tasks:
        if isinstance(task, Task) and task.agent is agent:
            given += task.tools or []
    names = [sanitize_tool_name(tool.name) for tool in given]
    return {
        name: ToolSpec(name, tool.description, tool.args_schema)
        for name, tool in zip(names, given, strict=True)
    }


@contextmanager
def rebound(found: Any, model: Any) -> Iterator[str]:
    """Give all agents of an Agent, a Task or a Crew another model for a while."""
    with ExitStack() as restored:
        for agent in members(found, repr(found)):
            restored.callback(setattr, agent, "llm", agent.llm)
            agent.llm = model
        if isinstance(found, Crew) and found.manager_llm is not None:
            restored.callback(setattr, found, "manager_llm", found.manager_llm)
            found.manager_llm = model
        yield "the attribute llm of each agent"
