"""CrewAI's agents, tasks, crews and flows: their parts, copies, inputs and runs."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from crewai import Agent, BaseLLM, Crew, Flow, Task
from crewai.events import crewai_event_bus
from crewai.events.event_listener import event_listener
from crewai.tools import BaseTool
from crewai.tools.tool_failure import ToolExecutionFailedError
from crewai.utilities.string_utils import sanitize_tool_name

from agentgym.core.agent import AgentSpec, Trained
from agentgym.core.background import call_in_thread
from agentgym.core.openai import DEFAULT_AGENT
from agentgym.core.tools import Tool, ToolSpec
from agentgym.errors import ToolError, UnsupportedError, UsageError
from agentgym.integrations.agent_import import kind_of, make
from agentgym.integrations.base import Conversation
from agentgym.integrations.client_adapter import (
    ClientConversation,
    ClientFramework,
    ClientLoop,
    Run,
    Settings,
    TrainedEndpoint,
    text_of,
)
from agentgym.integrations.episode import EpisodeCut, current_episode
from agentgym.integrations.in_place import in_thread
from agentgym.plugins.crewai import redirect
from agentgym.plugins.crewai.models import (
    CrewSpecTool,
    GatewayLLM,
    PlainLLM,
    require_apart,
    require_running,
)
from agentgym.scenarios.schemas import spec_of_model

PLACE = "task"
"""Name of the crew input with the user's request: ``{task}`` in a description."""
_MODELS = ("manager_llm", "function_calling_llm", "planning_llm", "chat_llm")
_OFF = {
    "memory": None,
    "knowledge": None,
    "knowledge_sources": None,
    "checkpoint": None,
}
_KEPT = ("mcps", "apps")


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


def _notes(found: Any) -> list[str]:
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


def silence() -> None:
    """Disable the panels that CrewAI prints, as ``Crew(verbose=False)`` does."""
    event_listener.formatter.verbose = False


class _CrewAIConversation(ClientConversation):
    async def _kick_off(self, text: Any) -> Any:
        """Call ``kickoff(text)`` of the agent or crew in a thread; return its output.

        Returns None if the model's answer was empty. If a tool's exception or a limit
        ended the episode, raises it, although CrewAI has handled it.
        """
        crewai_event_bus.reset_runtime_state()  # it would keep the agents of all runs
        output = None
        try:
            output = await call_in_thread(self._state.kickoff, text)
        except asyncio.CancelledError:
            current_episode().cut_short("cancelled")  # so the thread's next call fails
            raise
        except Exception as error:
            require_running()
            if isinstance(error, ToolExecutionFailedError):
                raise EpisodeCut("stuck", str(error)) from None
            if "None or empty" not in str(error):
                raise
        require_running()
        return output


class _AgentConversation(_CrewAIConversation):
    """Runs an agent once per user message, each time with all messages so far."""

    _messages: Sequence[dict[str, Any]] = ()

    def asked(self, message: str, given: Any) -> Any:
        if not isinstance(given, str | None):
            raise self._loop.wrong_input(given, "the text of the agent's input")
        return [*self._messages, {"role": "user", "content": given or message}]

    async def answer(self, asked: Any) -> str:
        output = await self._kick_off(asked)
        if output is None:
            return ""
        said = [m for m in output.messages if m["role"] != "system"]
        said[-1] = {**said[-1], "content": output.raw}  # CrewAI has stripped it
        self._messages = said
        return str(output.raw)


class _CrewConversation(_CrewAIConversation):
    """Runs a crew or a new flow, once: it cannot continue a conversation."""

    def asked(self, message: str, given: Any) -> Any:
        if self._has_begun:
            raise UnsupportedError(
                "A Crew, Task or Flow of CrewAI answers once, and the scenario's user "
                "says more. Let the factory return an Agent, which can go on."
            )
        if not isinstance(given, Mapping | None):
            raise self._loop.wrong_input(
                given, "a dict, as kickoff(inputs=...) takes it"
            )
        return inputs_of(self._state, message, dict(given or {}))

    async def answer(self, asked: Any) -> str:
        output = await self._kick_off(asked)
        return "" if output is None else text_of(getattr(output, "raw", output))


class _CrewAIFramework(ClientFramework):
    """Agents, crews, flows, tools and LLMs of CrewAI."""

    AGENTS, TOOLS, MODEL = (Agent, Task, Crew, Flow), BaseTool, BaseLLM

    def patch(self) -> None:
        redirect.patch()

    def require(self, agent: Any, origin: str, wanted: str) -> None:
        members(agent, origin)

    def model(self, client: Any, name: str) -> Any:
        sync = getattr(client, "sync_http", None)
        http = None if sync is None else (sync, client._client)
        return GatewayLLM.at(str(client.base_url), client.api_key, name, http)

    def tool(self, spec: ToolSpec, run: Run) -> Any:
        return CrewSpecTool.of(spec, run)

    def bound(self, tool: Tool) -> Any:
        """Convert an AgentGym tool, unless CrewAI would offer it by another name."""
        if (known_as := sanitize_tool_name(tool.spec.name)) != tool.spec.name:
            raise UnsupportedError(
                f"CrewAI offers the tool {tool.spec.name!r} to the model as "
                f"{known_as!r}, and it was trained with its own name. Name it "
                f"{known_as!r}."
            )
        return super().bound(tool)

    def default_agent(
        self, name: str, model: Any, tools: list[Any], settings: Settings
    ) -> Any:
        is_exported = isinstance(settings, AgentSpec)
        return Agent(
            role=DEFAULT_AGENT,
            goal="Do what the user asks.",
            backstory=settings.system_prompt,
            llm=model,
            tools=tools,
            max_iter=settings.max_turns,
            max_retry_limit=0,
            respect_context_window=is_exported,  # else CrewAI would exit the process
            use_better_compaction=False,
        )

    def prepared(self, agent: Any, tools: list[Any], loop: ClientLoop) -> Any:
        """Return an agent or crew to be copied, or a function that makes a flow."""
        source = loop.blueprint.agent
        origin = source.reference or ""
        require_apart([tool.name for tool in tools])
        silence()
        if isinstance(agent, Flow):
            again = type(agent) if loop.found is agent else loop.found
            return lambda: make(again, origin, llm=loop.model, tools=tools)
        form = agent
        if isinstance(agent, Task):
            form = Crew(agents=[*members(agent, origin)], tasks=[agent])
        if isinstance(form, Crew):
            require_inputs(form, origin, source.inputs is not None)
        return in_training(form, loop.model)

    def converse(self, agent: Any, loop: ClientLoop) -> Conversation:
        """Return a conversation with a new copy of the agent, crew or flow."""
        if isinstance(agent, Agent):
            return _AgentConversation(loop, copied(agent))
        return _CrewConversation(
            loop, copied(agent) if isinstance(agent, Crew) else agent()
        )

    def members(self, agent: Any) -> dict[str, Any]:
        return {" ".join(x.role.split()): x.llm for x in members(agent, "It")}

    def notes(self, agent: Any) -> list[str]:
        return _notes(agent)

    def trained_model(self, trained: Trained, at: TrainedEndpoint) -> Any:
        sync, client = at.sync_http(), at.http()
        return PlainLLM.at(
            at.base_url,
            at.api_key,
            at.model,
            None if sync is None or client is None else (sync, client),
            temperature=at.temperature,
            max_completion_tokens=at.max_tokens,
        )

    def on_model(self, agent: Any, model: Any) -> Any:
        return with_model(agent, model)

    def acts(self, value: Any) -> bool:
        is_agent = isinstance(value, Agent) and bool(value.tools or value.mcps)
        return is_agent or isinstance(value, Crew | Flow)

    def function(self, tool: Any) -> Any:
        return redirect.function_of(tool)

    def returned(self, tool: Any) -> Any:
        return getattr(self.function(tool), "__annotations__", {}).get("return")

    def spec(self, tool: Any) -> ToolSpec:
        name = sanitize_tool_name(tool.name)
        return spec_of_model(name, tool.description, tool.args_schema)

    async def run(self, tool: Any, arguments: dict[str, Any]) -> str:
        try:
            found = await in_thread(tool.run, **arguments)
        except Exception as error:
            raise ToolError(str(error)) from error  # CrewAI shows it to the model
        return redirect.text_read(tool, found)


FRAMEWORK = _CrewAIFramework()
