"""Check compiled graphs, and convert LangChain's tools."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, model_validator

from agentgym.core.openai import DEFAULT_AGENT
from agentgym.core.tools import ToolSpec
from agentgym.errors import UnsupportedError, message_of
from agentgym.integrations.in_place import reached, runs_agent
from agentgym.scenarios.schemas import model_of_schema

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

_HANDOFF = "__handoff_destination"

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


def can_wait(graph: Any) -> bool:
    """Return whether a graph, or a graph nested in it, may pause for a person."""
    from langgraph.pregel import Pregel
    from langgraph.types import interrupt

    return any(
        value is interrupt
        or (
            isinstance(value, Pregel)
            and (value.interrupt_before_nodes or value.interrupt_after_nodes)
        )
        for value in reached(graph, with_parts=True)
    )


def passes_control(tool: Any) -> bool:
    """Return whether a tool hands over to an agent, or calls an agent."""
    if _HANDOFF in (tool.metadata or {}):
        return True
    is_command = returns_command(tool) and "handoff" in tool.name
    return is_command or runs_agent(function_of(tool))


def returns_command(tool: Any) -> bool:
    """Return whether a tool's annotation says that it changes the graph's state."""
    hints = getattr(function_of(tool), "__annotations__", {})
    return "Command" in str(hints.get("return", ""))


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


def function_of(tool: Any) -> Any:
    """Return the async or sync function that a tool calls; None if it has none."""
    return getattr(tool, "coroutine", None) or getattr(tool, "func", None)
