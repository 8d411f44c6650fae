"""Run a graph in one episode, with its thread and interrupts."""

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.tools import BaseTool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.pregel import Pregel
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command
from pydantic_core import to_jsonable_python

from agentgym.core.agent import AgentSpec, Trained
from agentgym.core.tools import ToolSpec
from agentgym.errors import UnsupportedError, UsageError
from agentgym.integrations.agent_import import kind_of, values_for
from agentgym.integrations.base import Blueprint, Conversation
from agentgym.integrations.client_adapter import (
    ClientFramework,
    ClientLoop,
    GatewayModels,
    Run,
    Settings,
    TrainedEndpoint,
    text_of,
)
from agentgym.integrations.episode import YES, EpisodeCut, current_episode
from agentgym.integrations.langchain import graphs
from agentgym.integrations.langchain.models import (
    GatewayChatOpenAI,
    RoleChatOpenAI,
    limited,
    rebound,
    spec_tool,
)
from agentgym.integrations.transport import PLACEHOLDER
from agentgym.integrations.witness import saw

_THEIR_OWN = ("langchain", "langchain_core", "langgraph", "langchain_openai")
_BUILDERS = ("create_agent", "create_react_agent", "StateGraph")
_INTERRUPTED = "__interrupt__"
_REJECTED = "This call is not allowed."
_WAITS = (
    "Where it waits for a person it goes on at once: breakpoints are passed, calls "
    "that wait for approval are approved, and questions are answered by the scenario's "
    f"user, else with {YES!r}. --on-interrupt module:function answers in your way."
)


async def resumption(
    graph: Any,
    config: Mapping[str, Any],
    state: Any,
    answer: Callable[[Any], Any] | None = None,
) -> tuple[Any, ...]:
    """Return the input that resumes a graph, as a 1-tuple; empty if the graph ended.

    ``config`` (with the thread id) and ``state`` are those of the last run. Graphs
    without a checkpointer cannot wait. ``answer`` is the user's function for the value
    of an interrupt.
    """
    found = state.get(_INTERRUPTED, ()) if isinstance(state, Mapping) else ()
    if found:
        return (Command(resume={i.id: await _answer(i, answer) for i in found}),)
    if graph.checkpointer and (await graph.aget_state(config)).next:
        return (None,)  # continue after a breakpoint
    return ()


async def _answer(interrupt: Any, answer: Callable[[Any], Any] | None) -> Any:
    """Return the answer to one interrupt.

    A tool call that waits for approval is approved, so that the model's own call takes
    effect. The scenario's user answers other questions.
    """
    question = interrupt.value
    if answer is not None:
        given = answer(question)
        return await given if inspect.isawaitable(given) else given
    if isinstance(question, Mapping) and "action_requests" in question:
        configs = {c["action_name"]: c for c in question.get("review_configs", ())}
        actions = question["action_requests"]
        allowed = [configs.get(each["name"], {}) for each in actions]
        return {
            "decisions": [
                await _decision(config.get("allowed_decisions", ()), action)
                for config, action in zip(allowed, actions, strict=True)
            ]
        }
    if isinstance(question, Mapping) and question.get("type") == "tool_approval":
        kinds = list(_constants(getattr(interrupt, "response_schema", None)))
        return await _decision(kinds, question)
    requests = question if isinstance(question, list) else [question]
    is_inbox = (isinstance(r, Mapping) and "action_request" in r for r in requests)
    if requests and all(is_inbox):
        replies = [await _reply(request) for request in requests]
        return replies if isinstance(question, list) else replies[0]
    return current_episode().answer_to(str(question))


async def _reply(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reply to a request in the form of LangChain's Agent Inbox."""
    allowed, action = request.get("config") or {}, request["action_request"]
    if allowed.get("allow_accept", not allowed):
        return {"type": "accept", "args": None}
    if allowed.get("allow_respond"):
        return {"type": "response", "args": await _spoken(request, action["action"])}
    if allowed.get("allow_edit"):
        return {"type": "edit", "args": action}
    return {"type": "ignore", "args": None}


async def _spoken(request: Mapping[str, Any], name: str) -> str:
    """Return a person's text, for a tool that is not run or for a question."""
    episode, action = current_episode(), request.get("action_request", request)
    if name in episode.tools:
        called = action.get("tool_call_id")
        return await episode.use_tool(name, dict(action["args"]), call_id=called)
    return episode.answer_to(str(request.get("description", request)))


async def _decision(
    allowed: Sequence[str], action: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the decision on a tool call that waits for a person.

    It approves the call if possible. ``action`` is the tool call. ``allowed`` contains
    the kinds of decision that the graph accepts; if it is empty, all are accepted.
    """
    name, arguments = action["name"], dict(action["args"])
    if not allowed or "approve" in allowed:
        return {"type": "approve"}
    if "edit" in allowed:
        edited = {"name": name, "args": arguments}
        return {"type": "edit", "edited_action": edited}
    if "respond" in allowed:  # a person answers instead of the tool
        return {"type": "respond", "message": await _spoken(action, name)}
    return {"type": "reject", "message": _REJECTED}


def _constants(schema: Any) -> Iterator[str]:
    """Yield the values of the keyword ``const`` in a JSON schema."""
    if isinstance(schema, Mapping):
        for key, value in schema.items():
            if key == "const":
                yield str(value)
            yield from _constants(value)
    elif isinstance(schema, Sequence) and not isinstance(schema, str):
        for value in schema:
            yield from _constants(value)


class GraphRun:
    """A compiled graph and its run settings, for all episodes of a worker."""

    def __init__(self, graph: Any, loop: ClientLoop) -> None:
        self.graph = graph
        self._blueprint = blueprint = loop.blueprint
        self.steps = graphs.most_steps(graph, blueprint.max_turns)
        self.can_wait = graphs.can_wait(graph)
        self.takes = graphs.input_of_function(graph)
        given = blueprint.agent.on_interrupt
        self.on_interrupt = values_for(given, "--on-interrupt") if given else None
        self.context = loop.context
        if blueprint.agent.context is None and graph.context_schema is not None:
            self.context = _default_context(graph.context_schema, blueprint)

    def configurable(self) -> dict[str, Any]:
        """Return ``config["configurable"]``: the keys in the settings and in the task.

        If both have a key, the task's value is used.
        """
        return {
            **self._blueprint.agent.configurable,
            **current_episode().task.configurable,
        }


def _default_context(schema: Any, blueprint: Blueprint) -> Callable[[], Any]:
    try:
        schema()
    except Exception as error:
        raise UsageError(
            f"{blueprint.agent.reference} runs in a context, {schema.__name__}, which "
            f"cannot be made of nothing ({error}). Give --context module:function: a "
            "function of the task that returns it."
        ) from error
    made: Callable[[], Any] = schema
    return made


class GraphConversation(Conversation):
    """Runs a graph once per message of the user.

    A graph with a checkpointer gets its own thread and memory in each episode, and
    receives each message once. Any other graph receives all earlier messages again. If
    such a graph can wait for a person, it gets a temporary checkpointer, and a new
    thread per message.
    """

    def __init__(self, loop: ClientLoop) -> None:
        self._loop = loop
        self._messages: list[Any] | None = []
        self._options: dict[str, Any] = {}
        self._has_begun = False
        self._turns = 0
        self._take(loop.of_episode())

    def _take(self, run: GraphRun) -> None:
        self._run = run
        self._graph = graph = run.graph
        self._config: dict[str, Any] = {"recursion_limit": run.steps}
        self._remembers = bool(graph.checkpointer)
        if self._remembers or run.can_wait:
            self._graph = copy.copy(graph)
            self._graph.checkpointer = InMemorySaver()
        if graph.store is None:  # LangGraph's server gives every graph a store
            self._graph = copy.copy(self._graph)
            self._graph.store = InMemoryStore()

    def add_tools(self) -> None:
        """Continue with another graph, which offers the episode's new tools.

        An agent with its own tools continues unchanged.
        """
        run = self._loop.of_episode()
        if run is self._run:  # an agent with its own tools
            return
        if self._remembers:
            super().add_tools()
        self._take(run)

    async def turn(self, message: str) -> str:
        """Run the graph on a message, answer its interrupts, and return its answer."""
        self._begin_thread()
        with self._loop.models.answering():
            try:
                state = await self._invoke(self._input(message))
                for _ in range(self._run.steps):
                    answer = self._run.on_interrupt
                    given = await resumption(self._graph, self._config, state, answer)
                    if not given:
                        break
                    saw(note=_WAITS)
                    state = await self._resumed(*given)
                else:
                    raise EpisodeCut("max_turns", "it does not stop waiting")
            except GraphRecursionError:
                raise EpisodeCut("max_turns") from None
        return self._answer(state)

    async def _resumed(self, given: Any) -> Any:
        """Resume the graph; name the answer ``yes`` if its code fails on it."""
        episode = current_episode()
        before, answers = episode.answered, getattr(given, "resume", None) or {}
        try:
            return await self._invoke(given)
        except (TypeError, AttributeError, LookupError, ValueError) as error:
            if YES not in answers.values() or episode.answered > before:
                raise
            raise UnsupportedError(
                f"It waited for a person (interrupt), was answered {YES!r}, and its "
                f"own code failed: {type(error).__name__}: {error}. Answer as a person "
                "would, with --on-interrupt module:function, a function of the "
                "interrupt's value that returns the answer."
            ) from error

    def _answer(self, state: Any) -> str:
        """Return a result as text; keep its messages, and its state for a check."""
        if isinstance(state, str):
            return state
        if isinstance(state, Mapping):
            current_episode().end_state = {
                str(key): _as_json(value)
                for key, value in state.items()
                if key != "messages"
            }
        said = state.get("messages", ()) if isinstance(state, Mapping) else state
        said = said if isinstance(said, list | tuple) else [said]
        self._messages = [m for m in said if isinstance(m, BaseMessage)] or None
        return str(self._messages[-1].text) if self._messages else text_of(state)

    def _input(self, message: str) -> Any:
        if self._messages is None:
            raise UnsupportedError(
                "The graph returns no messages, so the conversation cannot go on. "
                "Give its state a `messages` key, as MessagesState does."
            )
        given: Any = None
        if not self._has_begun:
            self._has_begun = True
            if (context := self._run.context()) is not None:
                self._options["context"] = context
            given = self._loop.first_input()
        is_state = isinstance(given, Mapping) and not self._run.takes
        is_part = is_state and "messages" not in given
        if given is not None and not is_part:
            return given
        before = [] if self._remembers else self._messages
        messages = [*before, HumanMessage(message)]
        if self._run.takes == "array":
            return messages
        if self._run.takes == "string":
            return message
        return {**(given or {}), "messages": messages}

    def _begin_thread(self) -> None:
        """Set the thread id, and the user's own ``configurable`` keys, for a turn.

        A graph with a memory has one thread for the whole episode. The user's keys may
        set the thread id, but only for such a graph.
        """
        given = self._run.configurable()
        if self._graph.checkpointer and (not self._remembers or not self._turns):
            name = f"{current_episode().rollout_id}/{self._turns}"
            thread = {"thread_id": name}
            own = thread | given if self._remembers else given | thread
            self._config["configurable"] = own
        elif given:
            self._config["configurable"] = self._config.get("configurable", {}) | given
        self._turns += 1

    async def _invoke(self, asked: Any) -> Any:
        return await self._graph.ainvoke(asked, config=self._config, **self._options)


def _as_json(value: Any) -> Any:
    """Return a value of a state as JSON values; as text if it cannot be: a cycle."""
    try:
        return to_jsonable_python(value, bytes_mode="base64", fallback=str)
    except ValueError:
        return str(value)


class _LangChainFramework(ClientFramework):
    """Graphs, tools and models of LangChain; ``redirect`` has the patches."""

    AGENTS, TOOLS, MODEL = Pregel, BaseTool, object

    def model(self, client: Any, name: str) -> Any:
        return ChatOpenAI(
            model=name, base_url=str(client.base_url), api_key=lambda: client.api_key
        )

    def tool(self, spec: ToolSpec, run: Run) -> Any:
        return spec_tool(spec, run)

    def default_agent(
        self, name: str, model: Any, tools: list[Any], settings: Settings
    ) -> Any:
        from langchain.agents import create_agent

        return create_agent(
            model=model,
            tools=tools,
            system_prompt=settings.system_prompt or None,
            name=settings.scenario if isinstance(settings, AgentSpec) else None,
        )

    def prepared(self, agent: Any, tools: list[Any], loop: ClientLoop) -> GraphRun:
        return GraphRun(agent, loop)

    def converse(self, agent: Any, loop: ClientLoop) -> Conversation:
        return GraphConversation(loop)

    def notes(self, agent: Any) -> list[str]:
        found = []
        if agent.checkpointer:
            kind = type(agent.checkpointer).__name__
            found.append(
                "Each rollout has a thread and a memory of its own; "
                f"{kind} is not written."
            )
        if agent.store is not None:
            found.append(
                f"The store, {type(agent.store).__name__}, is shared by all rollouts: "
                "each reads the entries of the others."
            )
        return found

    def require(self, agent: Any, origin: str, wanted: str) -> None:
        if isinstance(agent, Pregel):
            return
        if hasattr(agent, "compile"):
            raise UnsupportedError(
                f"{origin} is a {type(agent).__name__} that is not compiled: name the "
                "result of its compile()."
            )
        raise UnsupportedError(
            f"{origin} gave {kind_of(agent)}, not a compiled graph. Return the "
            "result of langchain.agents.create_agent or StateGraph.compile."
        )

    def acts(self, value: Any) -> bool:
        """Return whether a value is a graph, or a function or class that makes one."""
        root = str(getattr(value, "__module__", "")).partition(".")[0]
        builds = root in _THEIR_OWN and getattr(value, "__name__", "") in _BUILDERS
        return builds or isinstance(value, Pregel)

    def function(self, tool: Any) -> Any:
        return graphs.function_of(tool)

    def returned(self, tool: Any) -> Any:
        return getattr(self.function(tool), "__annotations__", {}).get("return")

    def spec(self, tool: Any) -> ToolSpec:
        return graphs.spec_of(tool)

    async def run(self, tool: Any, arguments: dict[str, Any]) -> Any:
        return await tool.ainvoke(arguments)

    def gateway_model(self, models: GatewayModels) -> Any:
        blueprint = models.blueprint
        made = GatewayChatOpenAI(
            model=blueprint.model,
            base_url=blueprint.gateway + PLACEHOLDER,
            api_key=lambda: blueprint.api_key,
            http_async_client=models.http,
            http_client=models.sync_http,
            max_retries=0,
            cache=False,
        )
        made._posts = models.posts
        return made

    def trained_model(self, trained: Trained, at: TrainedEndpoint) -> Any:
        roles = trained.roles if at.transport is None else None
        return RoleChatOpenAI.at(at, roles)

    def on_model(self, agent: Any, model: Any) -> Any:
        return rebound(agent, model)

    def limited(self, agent: Any, max_turns: int) -> Any:
        return limited(agent, max_turns)


FRAMEWORK = _LangChainFramework()
