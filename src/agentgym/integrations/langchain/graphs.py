"""Inspect a compiled graph: its agents, with prompts, tools and models."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, model_validator

from agentgym.core.openai import DEFAULT_AGENT
from agentgym.core.tools import Tool, ToolSpec
from agentgym.errors import MissingExtraError, UnsupportedError, message_of
from agentgym.integrations.agent_import import kind_of
from agentgym.integrations.base import AgentRole, no_tools
from agentgym.integrations.episode import YES
from agentgym.integrations.on_client.in_place import live_tool
from agentgym.scenarios.schemas import distinct, model_of_schema

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

_DEEPEST = 4
_THEIR_OWN = ("langchain", "langchain_core", "langgraph", "langchain_openai")
_BUILDERS = ("create_agent", "create_react_agent", "StateGraph")
_HANDOFF = "__handoff_destination"
_APPROVES = "HumanInTheLoop"

_OF_CREATE_AGENT = "langchain_create_agent"


def running_role() -> str | None:
    """Return the name of the agent that makes the current model call, or None.

    The name is that of ``create_agent(name=...)``. For a graph that was built in
    another way, it is the name of the node that contains the graph. If no node contains
    the graph, it is the name of the node that calls the model.
    """
    from langchain_core.runnables.config import ensure_config

    return role_of(ensure_config().get("metadata", {}))


def role_of(metadata: Mapping[str, Any]) -> str | None:
    """Return the agent's name from the metadata of a model call; None if unknown."""
    if name := metadata.get("lc_agent_name"):
        return str(name)
    namespace = str(metadata.get("langgraph_checkpoint_ns") or "")  # outer:id|inner:id
    nodes = [part.partition(":")[0] for part in namespace.split("|") if part]
    if len(nodes) > 1:
        return nodes[-2]
    if nodes and metadata.get("ls_integration") == _OF_CREATE_AGENT:
        return DEFAULT_AGENT
    return nodes[0] if nodes else None


def most_steps(graph: Any, turns: int) -> int:
    """Return LangGraph's step limit for a graph with at most ``turns`` model calls.

    The limit allows one step of each node, start and end included, per model call. So
    it only ends a graph that loops without calling its model.
    """
    return (len(graph.nodes) + 2) * turns


def input_of_function(graph: Any) -> str | None:
    """Return the JSON type of the input of a function with ``@entrypoint``.

    ``object`` if the function does not say it. None for other graphs, whose input is
    their state.
    """
    if hasattr(graph, "builder"):
        return None
    try:
        return str(graph.get_input_jsonschema().get("type", "object"))
    except Exception:  # noqa: BLE001 - a type that pydantic cannot describe
        return "object"


def require_graph(graph: Any, origin: str) -> None:
    """Raise UnsupportedError if ``graph`` is not a compiled LangGraph graph.

    The message names the graph with ``origin``.
    """
    try:
        from langgraph.pregel import Pregel
    except ImportError:
        raise MissingExtraError("langchain", "The LangChain adapter") from None
    if isinstance(graph, Pregel):
        return
    if hasattr(graph, "compile"):
        raise UnsupportedError(
            f"{origin} is a {type(graph).__name__} that is not compiled: name the "
            "result of its compile()."
        )
    raise UnsupportedError(
        f"{origin} gave {kind_of(graph)}, not a compiled graph. Return the "
        "result of langchain.agents.create_agent or StateGraph.compile."
    )


def roles(graph: Any) -> list[AgentRole]:
    """Return a description of the graph's agent, and of agents nested in it."""
    require_graph(graph, f"The {type(graph).__name__}")
    found = [_role(name, each) for name, each in _graphs(graph)]
    return [role for role in found if role.tools or role.model is not None]


def concerns(graph: Any) -> list[str]:
    """Return notes for the user on how a graph behaves in training."""
    notes = []
    if graph.checkpointer:
        kind = type(graph.checkpointer).__name__
        notes.append(
            f"Each rollout has a thread and a memory of its own; {kind} is not written."
        )
    if graph.store is not None:
        notes.append(
            f"The store, {type(graph.store).__name__}, is shared by all rollouts: "
            "each reads the entries of the others."
        )
    if names := [t.name for _, each in _graphs(graph) for t in _commanding(each)]:
        listed = ", ".join(dict.fromkeys(names))
        notes.append(
            f"{listed} can change the graph's state (Command), which a recorded answer "
            "does not. If later steps depend on it, let them really run: "
            "--tools live --allow-tool NAME."
        )
    if can_wait(graph):
        notes.append(
            "Where it waits for a person it goes on at once: breakpoints are passed, "
            "calls that wait for approval are approved, and questions are answered by "
            f"the scenario's user, else with {YES!r}. --on-interrupt module:function "
            "answers in your way."
        )
    return notes


def can_wait(graph: Any) -> bool:
    """Return whether a graph, or a graph nested in it, may pause for a person."""
    return any(_waits(each) for _, each in _graphs(graph))


def _waits(graph: Any) -> bool:
    from langgraph.prebuilt import ToolNode
    from langgraph.types import interrupt

    if graph.interrupt_before_nodes or graph.interrupt_after_nodes:
        return True
    if any(_APPROVES in str(name) for name in graph.nodes):
        return True
    for _, bound in _runnables(graph):
        held = _values(bound)
        for tool in _tools_among(held):
            held = [*held, *_reachable(_function(tool))]
        wrapper = getattr(bound, "_wrap_tool_call", None)
        if isinstance(bound, ToolNode) and _APPROVES in repr(wrapper and _all(wrapper)):
            return True
        if any(value is interrupt for value in held):
            return True
    return False


def _all(function: Any, depth: int = 0) -> list[Any]:
    """Return a middleware function, and the functions in its closure, recursively."""
    cells = [
        cell.cell_contents for cell in getattr(function, "__closure__", None) or ()
    ]
    inner = [v for each in cells for v in (each if isinstance(each, list) else [each])]
    if depth > _DEEPEST:
        return [function]
    return [function, *(f for v in inner if callable(v) for f in _all(v, depth + 1))]


def is_synchronous(graph: Any) -> bool:
    """Return whether a graph has middleware without an async version.

    Such a graph, e.g. with ``@wrap_model_call`` on a plain function, only runs with
    ``invoke``: ``ainvoke`` raises NotImplementedError.
    """
    from langchain.agents.middleware import AgentMiddleware

    missing = (AgentMiddleware.awrap_model_call, AgentMiddleware.awrap_tool_call)
    held = [vars(bound) for _, each in _graphs(graph) for _, bound in _runnables(each)]
    return any(
        getattr(function, "__func__", None) in missing
        for own in held
        for function in _all(own.get("_awrap_tool_call") or own.get("afunc"))
    )


def own_tools(found: Any) -> list[Tool]:
    """Convert the tools of a graph, or a LangChain tool, to AgentGym tools."""
    from langchain_core.tools import BaseTool

    if isinstance(found, BaseTool):
        return [_callable_tool(found)]
    require_graph(found, f"The {type(found).__name__}")
    within = {
        id(tool): tool
        for _, graph in _graphs(found)
        for tool in _tools(graph)
        if not passes_control(tool)
    }
    if not within:
        raise no_tools(found, [graph.name for _, graph in _graphs(found)])
    return distinct(map(_callable_tool, within.values()))


def _commanding(graph: Any) -> "Iterator[BaseTool]":
    """Yield the tools of a graph that return a ``Command``, except hand-offs."""
    for tool in _tools(graph):
        if "Command" in _returned(tool) and not passes_control(tool):
            yield tool


def _returned(tool: Any) -> str:
    return str(getattr(_function(tool), "__annotations__", {}).get("return", ""))


def passes_control(tool: Any) -> bool:
    """Return whether a tool hands over to an agent, or calls an agent."""
    from langgraph.pregel import Pregel

    if _HANDOFF in (tool.metadata or {}):
        return True
    within = _reachable(_function(tool))
    if any(isinstance(value, Pregel) or _builds(value) for value in within):
        return True
    return "Command" in _returned(tool) and "handoff" in tool.name


def _builds(value: Any) -> bool:
    """Return whether a value is a function or class of LangGraph that makes agents."""
    root = str(getattr(value, "__module__", "")).partition(".")[0]
    return root in _THEIR_OWN and getattr(value, "__name__", "") in _BUILDERS


def spec_of(tool: "BaseTool") -> ToolSpec:
    """Return a tool's schema for a model, without LangGraph's injected arguments."""
    schema: Any = tool.tool_call_schema
    try:
        if isinstance(schema, dict):
            model = model_of_schema(tool.name, schema)
        elif issubclass(schema, BaseModel):
            strict = {"model_config": ConfigDict(extra="forbid", allow_inf_nan=False)}
            body = {**strict, "__module__": __name__, "__doc__": schema.__doc__}
            if aliases := aliases_of(tool):
                before: Any = model_validator(mode="before")
                renamed = classmethod(lambda cls, given: by_name(given, aliases))
                body["by_name"] = before(renamed)
            model = type(schema)(schema.__name__, (schema,), body)
        else:
            model = model_of_schema(tool.name, schema.schema())  # pydantic's version 1
        spec = ToolSpec(tool.name, tool.description, model)
        assert spec.parameters is not None
    except Exception as error:
        raise UnsupportedError(
            f"The tool {tool.name!r} cannot be described to a model: "
            f"{message_of(error)}. Give all of its arguments types that JSON can hold."
        ) from error
    return spec


def aliases_of(tool: "BaseTool") -> dict[str, str]:
    """Map the aliases of a tool's arguments to the names that LangChain shows."""
    fields: Any = getattr(tool.args_schema, "model_fields", {})
    return {each.alias: name for name, each in fields.items() if each.alias}


def by_name(given: Any, aliases: Mapping[str, str]) -> Any:
    """Return arguments under their names; LangChain accepts aliases, too."""
    return {aliases.get(k, k): v for k, v in given.items()}


def _callable_tool(tool: "BaseTool") -> Tool:
    async def run(arguments: dict[str, Any]) -> Any:
        return await tool.ainvoke(arguments)

    returned = getattr(_function(tool), "__annotations__", {}).get("return")
    return live_tool(spec_of(tool), run, returned)


def _function(tool: Any) -> Any:
    """Return the async or sync function that a tool calls; None if it has none."""
    return getattr(tool, "coroutine", None) or getattr(tool, "func", None)


def _role(name: str, graph: Any) -> AgentRole:
    cells = create_agent_cells(graph)
    prompt = cells["system_message"] if cells else None
    model = cells["model"] if cells else next(_models(graph), None)
    return AgentRole(
        name=name,
        system_prompt=None if prompt is None else str(prompt.text),
        tools=[spec_of(tool) for tool in _tools(graph)],
        model=model,
        answers=_answers(cells.get("initial_response_format")),
    )


def _answers(wanted: Any) -> tuple[str, ...]:
    """Return the names of the tools that a response format adds for the answer.

    The agent gives its structured answer as a call of such a tool.
    """
    specs = getattr(wanted, "schema_specs", None)
    if specs is not None:
        return tuple(str(spec.name) for spec in specs)
    name = getattr(getattr(wanted, "schema", None), "__name__", None)
    return () if name is None else (str(name),)


def create_agent_cells(graph: Any) -> dict[str, Any]:
    """Return the closure variables of ``create_agent``'s model node, by name.

    Empty for other graphs. The variables are private: a test fails when LangChain
    changes them.
    """
    node = graph.nodes.get("model")
    function = None if node is None else getattr(_runnable(node), "func", None)
    if function is None or function.__closure__ is None:
        return {}
    found = inspect.getclosurevars(function).nonlocals
    return dict(found) if {"model", "system_message"} <= found.keys() else {}


def _graphs(graph: Any) -> Iterator[tuple[str, Any]]:
    """Yield ``(name, graph)`` for a graph and for each graph in its nodes and tools."""
    from langgraph.pregel import Pregel

    seen: set[int] = set()
    waiting = [(str(graph.name), graph)]
    while waiting:
        name, each = waiting.pop(0)
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield name, each
        for node, bound in _runnables(each):
            inner = [bound] if isinstance(bound, Pregel) else _values(bound)
            for tool in _tools_among(inner):
                inner = [*inner, *_reachable(_function(tool))]
            for value in inner:
                if isinstance(value, Pregel):
                    own = str(value.name)
                    waiting.append((node if own == "LangGraph" else own, value))


def _runnables(graph: Any) -> Iterator[tuple[str, Any]]:
    for name, node in graph.nodes.items():
        if name != "__start__":
            yield str(name), _runnable(node)


def _runnable(node: Any) -> Any:
    """Return a node's original runnable, even in a copy made by ``rebound``."""
    return getattr(node.bound, "as_written", node.bound)


def _tools(graph: Any) -> "list[BaseTool]":
    found = [t for _, bound in _runnables(graph) for t in _tools_among(_values(bound))]
    return list({tool.name: tool for tool in found}.values())


def _tools_among(values: Iterable[Any]) -> "list[BaseTool]":
    from langchain_core.tools import BaseTool

    return [value for value in values if isinstance(value, BaseTool)]


def _models(graph: Any) -> Iterator[Any]:
    from langchain_core.language_models import BaseChatModel

    for _, bound in _runnables(graph):
        yield from (v for v in _values(bound) if isinstance(v, BaseChatModel))


def _values(bound: Any) -> list[Any]:
    """Return the parts of a node's runnable, and the objects that its functions use."""
    return [
        value
        for part in _parts(bound)
        for value in (_flat(part, 0) if _is_runnable(part) else _reachable(part))
    ]


def _parts(runnable: Any) -> list[Any]:
    """Return the runnables, tools and functions that make up a runnable.

    LangChain's sequences, fallbacks, retries and bindings keep their parts in
    ``__dict__``. Only this is read: reading other attributes may run code that fails.
    """
    from langgraph.prebuilt import ToolNode

    if isinstance(runnable, ToolNode):
        return list(runnable.tools_by_name.values())
    waiting = list(getattr(runnable, "__dict__", {}).values())
    found = []
    while waiting:
        value = waiting.pop(0)
        if isinstance(value, dict):
            waiting[:0] = value.values()
        elif isinstance(value, list | tuple):
            waiting[:0] = value
        elif _is_runnable(value) or (callable(value) and not inspect.isclass(value)):
            found.append(value)
    return found


def _is_runnable(value: Any) -> bool:
    from langchain_core.runnables import Runnable

    return isinstance(value, Runnable)


def _is_composed(value: Any) -> bool:
    """Return whether a value is a runnable that consists of other runnables.

    Models, tools and graphs do not count.
    """
    from langchain_core.language_models import BaseChatModel
    from langchain_core.tools import BaseTool
    from langgraph.pregel import Pregel

    whole: tuple[type, ...] = (BaseChatModel, BaseTool, Pregel)
    return _is_runnable(value) and not isinstance(value, whole)


def _reachable(function: Callable[..., Any] | None, depth: int = 0) -> list[Any]:
    """Return the objects to which a function refers, and the objects in them.

    ``function`` may also be an object with ``__call__``, or None.
    """
    if function is None:
        return []
    function = inspect.unwrap(getattr(function, "func", function))
    holder = getattr(function, "__self__", None)
    if not inspect.isroutine(function):
        holder = function
        function = getattr(function, "__call__", function)  # noqa: B004 - to inspect it
    held: list[Any] = []
    if not (inspect.isclass(holder) or inspect.ismodule(holder)):
        held += getattr(holder, "__dict__", {}).values()
    try:
        names = inspect.getclosurevars(function)
        held += [*names.nonlocals.values(), *names.globals.values()]
    except (TypeError, ValueError):  # not a Python function, or an empty cell
        pass
    found: list[Any] = []
    for value in held:
        found += _flat(value, depth)
    return found


def _flat(value: Any, depth: int) -> list[Any]:
    if depth > _DEEPEST:
        return []
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [found for item in value for found in _flat(item, depth + 1)]
    if type(value).__module__ == "langgraph.func":  # a function with @task
        return _reachable(value.func, depth + 1)
    if inspect.isroutine(value):
        root = str(getattr(value, "__module__", "")).partition(".")[0]
        return [value] if root in _THEIR_OWN else _reachable(value, depth + 1)
    parts = _parts(value) if _is_composed(value) else []
    return [value, *(found for part in parts for found in _flat(part, depth + 1))]
