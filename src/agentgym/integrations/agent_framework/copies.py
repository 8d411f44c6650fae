"""FrameworkCopies: copy agents and workflows, and replace their chat clients."""

import copy
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Self

from agent_framework import Agent, BaseChatClient, FunctionTool, Workflow
from agent_framework.exceptions import UserInputRequiredException

from agentgym.core.openai import DEFAULT_AGENT
from agentgym.errors import UnsupportedError
from agentgym.integrations.agent_framework.redirect import running
from agentgym.integrations.episode import episode_or_none
from agentgym.integrations.on_client.clients import PlainOpenAI
from agentgym.integrations.on_client.in_place import CallInPlace
from agentgym.integrations.on_client.servers import Servers

_KEPT_OPTIONS = frozenset(
    [
        *("additional_function_arguments", "allow_multiple_tool_calls", "tool_choice"),
        *("instructions", "max_tokens", "response_format", "seed", "stop"),
        *("temperature", "tools", "top_p", "user"),
    ]
)
"""Agent options that every model accepts. Copies drop the agent's other options, which
only some providers accept."""

_KNOWING_WORKFLOW = ("agent_middleware", "context_providers", "middleware")
"""Attributes of an agent that may refer to other parts of its workflow."""

_IS_COPY = "_agentgym_is_copy"
_OF_CLIENT = ("chat_middleware", "function_middleware")
_CONFIGURATION = "function_invocation_configuration"


def parts_of(workflow: Workflow, kind: Any) -> list[Any]:
    """Return the objects of class ``kind`` in a workflow and its nested workflows."""
    found: dict[int, Any] = {}
    for part in workflow.executors.values():
        for value in _held(vars(part).values()):
            if isinstance(value, Workflow):
                found |= {id(each): each for each in parts_of(value, kind)}
            elif isinstance(value, kind):
                found[id(value)] = value
    return list(found.values())


def _held(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, dict):
            yield from value.values()
        elif isinstance(value, list | tuple):
            yield from value
        else:
            yield value


class SharedServer:
    """Replaces an agent's MCP tool, so that all episodes of a worker share one server.

    Agent Framework uses this object like its own ``MCPTool``: it opens the server if
    ``is_connected`` is false, and then reads ``functions``. The argument ``tool``
    converts a function of the server to the function that agents call.
    """

    def __init__(
        self,
        found: Any,
        servers: Servers,
        tool: Callable[[FunctionTool], FunctionTool],
    ) -> None:
        self._found = found
        self._servers = servers
        self._tool = tool

    @property
    def is_connected(self) -> bool:
        """Whether the server is open and its functions are loaded."""
        return self._servers.is_open(self._found)

    @property
    def functions(self) -> list[FunctionTool]:
        """The server's functions, in the form that agents call."""
        return [self._tool(each) for each in self._found.functions]

    async def _prepare_for_run(self, arguments: Mapping[str, Any]) -> None:
        await self._found._prepare_for_run(arguments)

    async def __aenter__(self) -> Self:
        await self._servers.open(self._found, self._found)
        return self

    async def __aexit__(self, *error: object) -> None:
        """Do nothing, because other episodes use the server too."""


class FrameworkCopies:
    """Copies agents and workflows, and replaces their chat clients by ``client``.

    Each agent is copied once; the originals are not changed. Tools that a provider's
    servers run, e.g. web search, are left out, because those servers do not use the
    trained model. If an agent calls a tool and the current episode has a tool of the
    same name, the episode's tool is run. ``servers`` keeps MCP servers open for all
    episodes; if it is None, the copies use the agents' own MCP tools.
    """

    def __init__(self, client: Any, servers: Servers | None = None) -> None:
        self._client = client
        self._servers = servers
        self._made: dict[int, Any] = {}
        self._kept: list[Any] = []

    def of(self, agent: Any) -> Any:
        """Return the copy of an agent; if the agent is a copy, return it unchanged."""
        if _IS_COPY in vars(agent):
            return agent
        if id(agent) in self._made:
            return self._made[id(agent)]
        made = copy.copy(agent)
        vars(made)[_IS_COPY] = True
        self._kept.append(agent)  # otherwise its id could be reused
        self._made[id(agent)] = made
        made.client = self._client_of(agent)
        made.context_providers = list(agent.context_providers)
        made._async_exit_stack = AsyncExitStack()
        options = dict(agent.default_options)
        tools = [x for x in options.get("tools") or () if isinstance(x, FunctionTool)]
        kept = {key: options[key] for key in options if key in _KEPT_OPTIONS}
        made.default_options = kept | {"tools": [self._tool(each) for each in tools]}
        if self._servers is not None:
            made.mcp_tools = [
                SharedServer(each, self._servers, self._tool)
                for each in agent.mcp_tools
            ]
        return made

    def workflow(self, workflow: Workflow) -> Workflow:
        """Return a copy of a workflow in its initial state, with copied agents."""
        copies = FrameworkCopies(self._client, self._servers)
        agents = parts_of(workflow, Agent)
        instead: dict[int, Any] = {id(each): copies.of(each) for each in agents}
        clients = parts_of(workflow, BaseChatClient)
        instead |= {id(each): self._client for each in clients}
        try:
            made = copy.deepcopy(workflow, instead)
            for agent in agents:
                for name in _KNOWING_WORKFLOW:
                    whole = copy.deepcopy(getattr(agent, name), instead)
                    setattr(copies.of(agent), name, whole)
            return made
        except Exception as error:  # any class may refuse with its own exception
            raise UnsupportedError(
                f"The workflow {workflow.name!r} cannot be copied, and every rollout "
                f"needs one of its own: {type(error).__name__}: {error}. Let its parts "
                "hold agents and plain values."
            ) from error

    def _client_of(self, agent: Any) -> Any:
        made = copy.copy(self._client)
        for name in _OF_CLIENT:
            setattr(made, name, list(getattr(agent.client, name, ())))
        if (how := getattr(agent.client, _CONFIGURATION, None)) is not None:
            setattr(made, _CONFIGURATION, dict(how))
        if isinstance(made.client, PlainOpenAI):
            made.client = made.client.as_role(agent.name or DEFAULT_AGENT)
        return made

    def _tool(self, tool: FunctionTool) -> FunctionTool:
        made = copy.copy(tool)

        async def run(**named: Any) -> Any:
            with running(self.of):
                return await tool.invoke(**named)

        async def invoke(
            *, arguments: Any = None, tool_call_id: str | None = None, **named: Any
        ) -> Any:
            episode = episode_or_none()
            if episode is None or tool.name not in episode.tools:
                return await run(
                    arguments=arguments, tool_call_id=tool_call_id, **named
                )

            async def run_in_place(given: dict[str, Any]) -> Any:
                return await run(arguments=given, tool_call_id=tool_call_id, **named)

            call = CallInPlace(
                tool.name,
                run_in_place,
                read=_as_read,
                not_done=(UserInputRequiredException,),
            )
            with call.running():
                text = await episode.use_tool(
                    tool.name, _as_written(tool, arguments), call_id=tool_call_id
                )
            result = call.result(text)
            return FunctionTool.parse_result(text) if result is text else result

        vars(made)["invoke"] = invoke
        return made


def _as_read(result: Any) -> Any:
    """Return the text that the model reads of a tool's result."""
    if not isinstance(result, list):
        return result
    return "".join(str(getattr(each, "text", None) or "") for each in result)


def _as_written(tool: FunctionTool, arguments: Any) -> Any:
    """Return a call's arguments as the model wrote them: a JSON object, or a text.

    Agent Framework stores a text that is not a JSON object as ``{"raw": text}``.
    """
    given = dict(arguments or {})
    if given.keys() != {"raw"} or "raw" in tool.parameters().get("properties", {}):
        return given
    return str(given["raw"])
