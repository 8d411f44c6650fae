"""Copy agents and crews, with another model or for one episode."""

from typing import Any

from crewai import Agent, BaseLLM, Crew, Flow, Task
from crewai.tools import BaseTool

from agentgym.errors import UnsupportedError
from agentgym.plugins.crewai.crews import members, own_tools

_MODELS = ("manager_llm", "function_calling_llm", "planning_llm", "chat_llm")
_OFF = {
    "memory": None,
    "knowledge": None,
    "knowledge_sources": None,
    "checkpoint": None,
}
_KEPT = ("mcps", "apps")


def with_model(found: Any, model: Any) -> Any:
    """Return a copy of an Agent, Task or Crew whose LLMs are all ``model``."""
    if isinstance(found, Flow):
        raise UnsupportedError(
            f"{type(found).__name__} is a Flow, whose code makes its models. Serve the "
            "trained one with `agentgym serve`, and let the flow's LLMs ask it: "
            "LLM(model='openai/NAME', base_url='http://127.0.0.1:8080/v1')."
        )
    agents = members(found, f"The {type(found).__name__}")
    changed = _Changed(model, {})
    if isinstance(found, Agent):
        return copied(changed.agent(found))
    if isinstance(found, Task):
        agent = copied(changed.agent(agents[0]))
        task = changed.task(found)
        task.context = None if isinstance(task.context, list) else task.context
        return task.copy([], {}).model_copy(update={"agent": agent})
    return copied(changed.crew(found))


def in_training(found: Agent | Crew, model: BaseLLM) -> Agent | Crew:
    """Return an agent or crew for training, to be copied for each episode.

    All its LLMs are ``model``. Memory, knowledge, a crew's planning, output files and
    questions to people are disabled.
    """
    changed = _Changed(model, _OFF)
    if isinstance(found, Agent):
        return changed.agent(found)
    return changed.crew(found).model_copy(
        update={"planning": False, "output_log_file": None, "verbose": False}
    )


def copied(found: Agent | Crew) -> Agent | Crew:
    """Return a copy of an agent or crew, with separate state.

    CrewAI's own ``copy`` alone would lose MCP servers and apps. It would also merge
    agents with the same role, and tasks with the same description.
    """
    if isinstance(found, Agent):
        return _agent_copied(found)
    made = found.copy()
    agents: dict[int, Any] = {}
    for agent, copy in zip(found.agents, made.agents, strict=True):
        _complete(copy, agent)
        agents[id(agent)] = copy
    for task, twin in zip(found.tasks, made.tasks, strict=True):
        if isinstance(task.agent, Agent):
            if id(task.agent) not in agents:
                agents[id(task.agent)] = _agent_copied(task.agent)
            twin.agent = agents[id(task.agent)]
        twin.tools = _tools_copied(task.tools)
        if isinstance(task.context, list):
            places = [_place(found.tasks, other) for other in task.context]
            twin.context = [made.tasks[place] for place in places]
    if made.manager_agent is not None:
        _complete(made.manager_agent, found.manager_agent)
    return made


def _place(tasks: list[Task], task: Task) -> int:
    return next(n for n, other in enumerate(tasks) if other is task)


def _agent_copied(agent: Agent) -> Agent:
    copy: Agent = agent.copy()
    _complete(copy, agent)
    return copy


def _complete(copy: Any, agent: Any) -> None:
    for name in _KEPT:
        setattr(copy, name, getattr(agent, name))
    copy.tools = _tools_copied(agent.tools)


def _tools_copied(tools: list[BaseTool] | None) -> list[BaseTool]:
    """Return copies of the tools that count their calls, and the other tools.

    So each copy of an agent has its own counters of tool calls.
    """
    return [x if x.max_usage_count is None else x.model_copy() for x in tools or ()]


class _Changed:
    """Creates shallow copies of agents, tasks and crews, with some parts replaced.

    ``model`` replaces all LLMs. ``off`` contains the attributes to set so that parts
    are disabled in training, e.g. ``memory``; it is empty outside of training.
    """

    def __init__(self, model: BaseLLM, off: dict[str, Any]) -> None:
        self._model = model
        self._off = off
        self._agents: dict[int, Agent] = {}

    def agent(self, agent: Agent) -> Agent:
        if id(agent) not in self._agents:
            tools = own_tools(agent) if self._off else agent.tools
            changed: dict[str, Any] = {"llm": self._model, "tools": tools}
            if self._off:
                changed["mcps"] = None  # their tools are listed above
            if vars(agent).get("function_calling_llm") is not None:
                changed["function_calling_llm"] = self._model
            if agent.planning_config is not None:
                message: dict[str, Any] = {"llm": None}  # None: the agent's own llm
                message |= {"observe_steps": False} if self._off else {}
                plans = agent.planning_config.model_copy(update=message)
                changed["planning_config"] = plans
            if self._off:
                changed["verbose"] = False
            made = agent.model_copy(update={**changed, **self._off})
            self._agents[id(agent)] = made
        return self._agents[id(agent)]

    def task(self, task: Task) -> Task:
        changed: dict[str, Any] = {}
        if isinstance(task.agent, Agent):
            changed["agent"] = self.agent(task.agent)
        if self._off:
            changed |= {"human_input": False, "output_file": None}
        return task.model_copy(update=changed)

    def crew(self, crew: Crew) -> Crew:
        tasks = [self.task(task) for task in crew.tasks]
        for task, original in zip(tasks, crew.tasks, strict=True):
            if isinstance(original.context, list):
                places = [_place(crew.tasks, other) for other in original.context]
                task.context = [tasks[place] for place in places]
        agents = [self.agent(a) if isinstance(a, Agent) else a for a in crew.agents]
        changed: dict[str, Any] = {"agents": agents, "tasks": tasks}
        changed |= {n: self._model for n in _MODELS if vars(crew).get(n) is not None}
        if crew.planning:
            changed["planning_llm"] = self._model
        if isinstance(crew.manager_agent, Agent):
            changed["manager_agent"] = self.agent(crew.manager_agent)
        made = crew.model_copy(update={**changed, **self._off})
        if self._off:
            made._memory = None
        return made
