"""Classes of CrewAI; the agents, tasks, tools and inputs of its crews."""

from typing import Any

from crewai import Agent, BaseLLM, Crew, Flow, Task
from crewai.tools import BaseTool

from agentgym.core.agent import AgentSpec
from agentgym.core.openai import DEFAULT_AGENT
from agentgym.errors import UnsupportedError, UsageError
from agentgym.integrations.agent_import import kind_of
from agentgym.integrations.base import Blueprint
from agentgym.plugins.crewai.tools import tools_of as tools_of

PLACE = "task"
"""Name of the crew input with the user's request: ``{task}`` in a description."""


AGENTS, TOOLS, MODEL = (Agent, Task, Crew, Flow), BaseTool, BaseLLM


def default_agent(
    llm: Any, tools: list[Any], settings: Blueprint | AgentSpec, is_exported: bool
) -> Agent:
    """Return the default agent, which is used if the user gives none."""
    return Agent(
        role=DEFAULT_AGENT,
        goal="Do what the user asks.",
        backstory=settings.system_prompt,
        llm=llm,
        tools=tools,
        max_iter=settings.max_turns,
        max_retry_limit=0,
        respect_context_window=is_exported,  # otherwise CrewAI would exit the process
        use_better_compaction=False,
    )


def runner(found: Any, origin: str) -> "Agent | Crew | Flow[Any]":
    """Return the object to run: the object itself, or a new Crew for a Task."""
    agents = members(found, origin)
    if isinstance(found, Task):
        return Crew(agents=[*agents], tasks=[found])
    runs: Agent | Crew | Flow[Any] = found
    return runs


def inputs_of(runs: "Crew | Flow[Any]", message: str, given: dict[str, Any]) -> Any:
    """Return a crew's or flow's inputs: the message as ``task``, if it has a place."""
    fields = getattr(type(getattr(runs, "state", None)), "model_fields", None)
    if fields is None or PLACE in fields:
        return {PLACE: message, **given}
    if given:
        return given
    names = ", ".join(name for name in fields if name != "id")
    raise UsageError(
        f"The state of {type(runs).__name__} has no place for the user's words. It has "
        f"{names}: give --inputs module:function, a function of the task that returns "
        f"a dict of them, or give the state a field {PLACE!r}."
    )


def require_inputs(crew: Crew, origin: str, has_inputs: bool) -> None:
    """Check that ``{task}`` is the only placeholder in a crew's task descriptions.

    It becomes the user's request. If ``has_inputs``, nothing is checked, because the
    user's ``--inputs`` function returns the values of the placeholders.
    """
    wanted = sorted(filter(str.isidentifier, crew.fetch_inputs()))
    others = [name for name in wanted if name != PLACE]
    if has_inputs or (wanted and not others):
        return
    message = f"{origin} is a crew for whose tasks training has no words."
    if not others:
        raise UsageError(
            f"{message} Write {{{PLACE}}} in a description, where the user's words "
            "belong."
        )
    named = ", ".join(f"{{{name}}}" for name in others)
    values = ", ".join(f"'{name}': ..." for name in others)
    raise UsageError(
        f"{message} They say {named}: give --inputs module:function, a function of the "
        f"task that returns {{{values}}}, or write {{{PLACE}}} instead, where the "
        "user's words belong."
    )


def tasks_of(found: Any) -> list[Task]:
    """Return a crew's tasks, or a list of one task; empty for an agent."""
    if isinstance(found, Task):
        return [found]
    return list(found.tasks) if isinstance(found, Crew) else []


def members(found: Any, origin: str) -> list[Agent]:
    """Return the agents of an Agent, a Task or a Crew, each once.

    Those of a Flow, which its code makes, are unknown. Raise UnsupportedError if
    ``found`` is none of these, or has no CrewAI agent.
    """
    if isinstance(found, Agent):
        return [found]
    if isinstance(found, Flow):
        return []
    if not isinstance(found, Task | Crew):
        raise UnsupportedError(
            f"{origin} gave {kind_of(found)}, not an Agent, Task, Crew or Flow of "
            "CrewAI."
        )
    workers = [task.agent for task in tasks_of(found)]
    named = (
        [*found.agents, *workers, found.manager_agent]
        if isinstance(found, Crew)
        else workers
    )
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


def role_of(agent: Agent) -> str:
    """Return an agent's role on one line, as its requests name it."""
    return " ".join(agent.role.split())


def _observes(agent: Agent) -> bool:
    plans = agent.planning_config
    if plans is None or plans.observe_steps is not None:
        return plans is not None and bool(plans.observe_steps)
    return plans.reasoning_effort != "low"


def own_tools(agent: Agent) -> list[BaseTool]:
    """Return an agent's tools, including those of its MCP servers.

    Each server is started to list its tools, and then stopped.
    """
    own = list(agent.tools or ())
    if not agent.mcps:
        return own
    from crewai.mcp.tool_resolver import MCPToolResolver

    resolver = MCPToolResolver(agent=agent, logger=agent._logger)
    try:
        return own + resolver.resolve(list(agent.mcps))
    except (RuntimeError, OSError) as error:
        raise UnsupportedError(
            f"The MCP servers of {agent.role.strip()} cannot be asked for their tools: "
            f"{error}. Check that their commands run and their addresses answer."
        ) from error
    finally:
        resolver.cleanup()


def acts(value: Any) -> bool:
    """Return whether an object is a crew or a flow, or an agent with tools."""
    is_agent = isinstance(value, Agent) and bool(value.tools or value.mcps)
    return is_agent or isinstance(value, Crew | Flow)


def notes(found: Any) -> list[str]:
    """Return notes for the user on how an agent or crew behaves in training."""
    said = []
    if isinstance(found, Flow):
        said.append(
            "Each rollout has a new flow. Its own code really runs: files that it "
            "writes are written, and memory of its crews is not turned off."
        )
    agents = members(found, f"The {type(found).__name__}")
    crews = [found] if isinstance(found, Crew) else []
    holders: list[Agent | Crew] = [*agents, *crews]
    if any(held.memory for held in holders):
        said.append("Memory is off: no rollout reads the entries of another one.")
    if any(held.knowledge_sources or held.knowledge for held in holders):
        said.append("Knowledge is off: no model is asked for embeddings.")
    if any(crew.planning for crew in crews):
        said.append("Planning is off: it wants a structured answer.")
    written = [task.output_file for task in tasks_of(found) if task.output_file]
    for crew in crews:
        log = crew.output_log_file
        written += ["logs.txt" if log is True else str(log)] if log else []
    if any(held.checkpoint for held in holders):
        written.append("checkpoints")
    if written:
        said.append(f"Not written in training: {', '.join(written)}.")
    if any(_observes(agent) for agent in agents):
        said.append("Steps of a plan are not observed: it wants a structured answer.")
    if any(task.human_input for task in tasks_of(found)):
        said.append("Tasks that wait for a person's word go on without it.")
    names = [agent.role.strip() for agent in agents if agent.apps]
    if names:
        said.append(f"Apps of {', '.join(names)} are really reached.")
    return said
