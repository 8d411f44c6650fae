"""Redirect chat clients and tools of Agent Framework's agents.

If an agent calls a tool and the current episode has a tool of the same name, the
episode's tool is run. Tools that a provider's servers run, e.g. web search, are left
out, because those servers do not use the trained model. The framework does not support
patching these classes: a test fails when a new version changes them.
"""

import copy
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from agentgym.core.openai import DEFAULT_AGENT
from agentgym.integrations.on_client.adapter import left_out
from agentgym.integrations.on_client.clients import PlainOpenAI
from agentgym.integrations.on_client.in_place import called, runs_agent
from agentgym.integrations.on_client.servers import current_servers
from agentgym.integrations.redirect import model_for

_NAME = "agent_framework"
_MCP = "agent_framework._mcp"
_KEPT_OPTIONS = frozenset(
    [
        *("additional_function_arguments", "allow_multiple_tool_calls", "tool_choice"),
        *("instructions", "max_tokens", "response_format", "seed", "stop"),
        *("temperature", "tools", "top_p", "user"),
    ]
)
"""Options that every model accepts. The other options, which only some providers
accept, are dropped."""
_OF_CLIENT = ("chat_middleware", "function_middleware")
_CONFIGURATION = "function_invocation_configuration"


def client_for(model: Any, agent: Any, client: Any) -> Any:
    """Return a copy of ``model`` for an agent that has ``client``.

    It has the client's middleware, and sends the agent's name with each request.
    """
    made = copy.copy(model)
    for name in _OF_CLIENT:
        setattr(made, name, list(getattr(client, name, ())))
    if (how := getattr(client, _CONFIGURATION, None)) is not None:
        setattr(made, _CONFIGURATION, dict(how))
    if isinstance(made.client, PlainOpenAI):
        made.client = made.client.as_role(agent.name or DEFAULT_AGENT)
    return made


def for_any_model(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a request that the policy accepts."""
    from agent_framework import FunctionTool

    kept = {key: options[key] for key in options if key in _KEPT_OPTIONS}
    if "tools" in kept:
        found = kept["tools"] or ()
        for tool in found:
            if not isinstance(tool, FunctionTool):
                left_out(tool)
        kept["tools"] = [each for each in found if isinstance(each, FunctionTool)]
    return kept


def _passes_on(tool: Any) -> bool:
    """Return whether a tool runs another agent, or hands over to another agent."""
    module = getattr(tool.func, "__module__", None) or ""
    if module.startswith("agent_framework"):
        return module != _MCP
    return runs_agent(tool.func)


def patch_agents(module: ModuleType) -> None:
    """Patch the attribute ``client`` of agents, so that it can be replaced."""

    def client(self: Any) -> Any:
        own = vars(self)["client"]
        other = model_for(_NAME, is_call=False, instead=own)
        return own if other is None else client_for(other, self, own)

    def set_client(self: Any, client: Any) -> None:
        vars(self)["client"] = client

    kind: Any = module.RawAgent
    kind.client = property(client, set_client)


def patch_clients(module: ModuleType) -> None:
    """Patch ``BaseChatClient``, so that clients without an agent can be replaced."""
    kind: Any = module.BaseChatClient
    get_response = kind.get_response

    def routed(self: Any, messages: Any, *, options: Any = None, **named: Any) -> Any:
        if (other := model_for(_NAME)) is not None:
            self = self if isinstance(self, type(other)) else other
            options = for_any_model(options or {})
        return get_response(self, messages, options=options, **named)

    kind.get_response = routed


def patch_tools(module: ModuleType) -> None:
    """Patch tool calls: run the current episode's tool of the same name, if any."""
    kind: Any = module.FunctionTool
    invoke = kind.invoke

    async def routed(
        self: Any,
        *,
        arguments: Any = None,
        tool_call_id: str | None = None,
        **named: Any,
    ) -> Any:
        from agent_framework.exceptions import UserInputRequiredException

        rest, given = named, arguments
        if arguments is None:
            known = self.parameters().get("properties", {})
            given = {key: named[key] for key in named if key in known}
            rest = {key: named[key] for key in named if key not in known}

        async def run(asked: Any) -> Any:
            more = {"arguments": arguments, **named}
            if asked is not None:
                more = {"arguments": asked, **rest}
            return await invoke(self, tool_call_id=tool_call_id, **more)

        return await called(
            self.name,
            as_written(self, given),
            run,
            lambda: _passes_on(self),
            answer=kind.parse_result,
            call_id=tool_call_id,
            read=_as_read,
            not_done=(UserInputRequiredException,),
        )

    kind.invoke = routed


def patch_servers(module: ModuleType) -> None:
    """Patch MCP servers, so that all episodes of a worker share one server."""
    kind: Any = module.MCPTool
    enter, leave = kind.__aenter__, kind.__aexit__

    async def entered(self: Any) -> Any:
        if (servers := current_servers()) is None:
            return await enter(self)
        await servers.open(self, self)  # it enters outside of the episode
        return self

    async def left(self: Any, *error: Any) -> None:
        if current_servers() is None:
            await leave(self, *error)

    kind.__aenter__, kind.__aexit__ = entered, left


def _as_read(result: Any) -> Any:
    """Return the text that the model reads of a tool's result."""
    if not isinstance(result, list):
        return result
    return "".join(str(getattr(each, "text", None) or "") for each in result)


def as_written(tool: Any, arguments: Any) -> Any:
    """Return a call's arguments as the model wrote them: a JSON object, or a text.

    Agent Framework stores a text that is not a JSON object as ``{"raw": text}``.
    """
    given = dict(arguments or {})
    if given.keys() != {"raw"} or "raw" in tool.parameters().get("properties", {}):
        return given
    return str(given["raw"])
