"""Agents and workflows of Agent Framework, in an episode and with another client.

If an agent calls a tool and the current episode has a tool of the same name, the
episode's tool is run. Tools that a provider's servers run, e.g. web search, are left
out, because those servers do not use the trained model. The framework does not support
patching these classes: a test fails when a new version changes them.
"""

import copy
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from agent_framework import (
    Agent,
    AgentResponse,
    BaseChatClient,
    Content,
    FunctionTool,
    Message,
    RawAgent,
    Workflow,
    _mcp,
)
from agent_framework.exceptions import UserInputRequiredException
from agent_framework.openai import OpenAIChatCompletionClient

from agentgym.core.openai import DEFAULT_AGENT
from agentgym.core.tools import ToolSpec
from agentgym.errors import UnsupportedError
from agentgym.integrations.client_adapter import (
    ClientConversation,
    ClientFramework,
    ClientLoop,
    Run,
    Settings,
    current_servers,
    left_out,
    spec_of,
    text_of,
)
from agentgym.integrations.episode import current_episode
from agentgym.integrations.in_place import called
from agentgym.integrations.plain_openai import PlainOpenAI
from agentgym.integrations.redirect import answering, model_for

_MOST = 1_000
"""The default agent's limit of model requests, and its limit of failed tool calls in a
row. Both exceed an episode's own limits, so that an episode's limit ends the run."""
_NAME = "agent_framework"
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
_KNOWING_WORKFLOW = ("agent_middleware", "context_providers", "middleware")
"""Attributes of an agent that may refer to other parts of its workflow."""


def _client_for(model: Any, agent: Any, client: Any) -> Any:
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


def _for_any_model(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a request that the policy accepts."""
    kept = {key: options[key] for key in options if key in _KEPT_OPTIONS}
    if "tools" in kept:
        found = kept["tools"] or ()
        for tool in found:
            if not isinstance(tool, FunctionTool):
                left_out(tool)
        kept["tools"] = [each for each in found if isinstance(each, FunctionTool)]
    return kept


def _patch_agents() -> None:
    """Patch the attribute ``client`` of agents, so that it can be replaced."""

    def client(self: Any) -> Any:
        own = vars(self)["client"]
        other = model_for(_NAME, is_call=False, instead=own)
        return own if other is None else _client_for(other, self, own)

    def set_client(self: Any, client: Any) -> None:
        vars(self)["client"] = client

    kind: Any = RawAgent
    kind.client = property(client, set_client)


def _patch_clients() -> None:
    """Patch ``BaseChatClient``, so that clients without an agent can be replaced."""
    kind: Any = BaseChatClient
    get_response = kind.get_response

    def routed(self: Any, messages: Any, *, options: Any = None, **named: Any) -> Any:
        if (other := model_for(_NAME)) is not None:
            self = self if isinstance(self, type(other)) else other
            options = _for_any_model(options or {})
        return get_response(self, messages, options=options, **named)

    kind.get_response = routed


def _patch_tools() -> None:
    """Patch tool calls: run the current episode's tool of the same name, if any."""
    kind: Any = FunctionTool
    invoke = kind.invoke

    async def routed(
        self: Any,
        *,
        arguments: Any = None,
        tool_call_id: str | None = None,
        **named: Any,
    ) -> Any:
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
            _as_written(self, given),
            run,
            lambda: FRAMEWORK.passes_control(self),
            answer=kind.parse_result,
            call_id=tool_call_id,
            read=_as_read,
            not_done=(UserInputRequiredException,),
        )

    kind.invoke = routed


def _patch_servers() -> None:
    """Patch MCP servers, so that all episodes of a worker share one server."""
    kind: Any = _mcp.MCPTool
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


def _as_written(tool: Any, arguments: Any) -> Any:
    """Return a call's arguments as the model wrote them: a JSON object, or a text.

    Agent Framework stores a text that is not a JSON object as ``{"raw": text}``.
    """
    given = dict(arguments or {})
    if given.keys() != {"raw"} or "raw" in tool.parameters().get("properties", {}):
        return given
    return str(given["raw"])


def _parts_of(workflow: Workflow, kind: Any) -> list[Any]:
    """Return the objects of class ``kind`` in a workflow and its nested workflows."""
    found: dict[int, Any] = {}
    for part in workflow.executors.values():
        for value in _held(vars(part).values()):
            if isinstance(value, Workflow):
                found |= {id(each): each for each in _parts_of(value, kind)}
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


def _copied(agent: Agent[Any]) -> Agent[Any]:
    """Return a copy of an agent, with separate state."""
    made = copy.copy(agent)
    made.context_providers = list(agent.context_providers)
    made._async_exit_stack = AsyncExitStack()
    return made


def _agent_on_model(agent: Agent[Any], model: Any) -> Agent[Any]:
    """Return a copy of an agent that uses ``model``, as do the agents it runs."""
    made = _copied(agent)
    made.client = _client_for(model, agent, agent.client)
    options = _for_any_model(agent.default_options)
    tools = [_tool_on_model(tool, model) for tool in options.get("tools", ())]
    made.default_options = {**options, "tools": tools}
    return made


def _tool_on_model(tool: FunctionTool, model: Any) -> FunctionTool:
    made = copy.copy(tool)

    async def invoke(**named: Any) -> Any:
        with answering({"agent_framework": model}.get):
            return await tool.invoke(**named)

    vars(made)["invoke"] = invoke
    return made


def _workflow_copied(
    workflow: Workflow, agent: Callable[[Agent[Any]], Agent[Any]], client: Any = None
) -> Workflow:
    """Return a copy of a workflow in its initial state.

    ``agent`` copies each of its agents. ``client`` replaces its chat clients, if given.
    """
    agents = _parts_of(workflow, Agent)
    made_of = {id(each): agent(each) for each in agents}
    instead: dict[int, Any] = {**made_of}
    clients = _parts_of(workflow, BaseChatClient)
    instead |= {id(each): client or each for each in clients}
    try:
        made = copy.deepcopy(workflow, instead)
        for each in agents:
            for name in _KNOWING_WORKFLOW:
                whole = copy.deepcopy(getattr(each, name), instead)
                setattr(made_of[id(each)], name, whole)
        return made
    except Exception as error:  # any class may refuse with its own exception
        raise UnsupportedError(
            f"The workflow {workflow.name!r} cannot be copied, and every rollout "
            f"needs one of its own: {type(error).__name__}: {error}. Let its parts "
            "hold agents and plain values."
        ) from error


class _Conversation(ClientConversation):
    """Runs the user's agent, or a copy of the workflow, once per message of the user.

    An agent keeps the earlier messages in a session of the framework.
    """

    def __init__(self, loop: ClientLoop, state: Any) -> None:
        super().__init__(loop, state)
        self._waiting: dict[str, Any] = {}
        if isinstance(state, Workflow):
            self._state = _workflow_copied(state, _copied)
        else:
            self._state = _copied(state)
            self._session = self._state.create_session()

    async def answer(self, asked: Any) -> str:
        """Run the agent; meanwhile, answer its requests for approval or for input."""
        if isinstance(self._state, Workflow):
            return await self._run_workflow(self._state, asked)
        response = await self._state.run(asked, session=self._session)
        while requests := response.user_input_requests:
            approved = [await _answer(request) for request in requests]
            response = await self._state.run(
                Message("user", approved), session=self._session
            )
        return str(response.text)

    async def _run_workflow(self, workflow: Workflow, message: Any) -> str:
        """Run a workflow until it ends or waits for the user; return its answer."""
        given: dict[str, Any] = {}
        for name, asked in self._waiting.items():
            given[name] = asked.create_response(message)
        ended = await (
            workflow.run(responses=given) if given else workflow.run(message)
        )
        while waiting := {
            x.request_id: x.data for x in ended.get_request_info_events()
        }:
            if all(map(_is_answer, waiting.values())):
                self._waiting = waiting
                return [_text(each.agent_response) for each in waiting.values()][-1]
            given = {name: await _answer(asked) for name, asked in waiting.items()}
            ended = await workflow.run(responses=given)
        self._waiting = {}
        outputs = ended.get_outputs()
        return _text(outputs[-1]) if outputs else ""


def _is_answer(asked: Any) -> bool:
    """Return whether a workflow's request to the user contains an agent's answer.

    A hand-off workflow sends each answer to the user in such a request.
    """
    return isinstance(getattr(asked, "agent_response", None), AgentResponse)


async def _answer(asked: Any) -> Any:
    """Return the response to a request of an agent or workflow.

    A tool call that waits for approval is approved. For a tool call that the framework
    does not run itself, the episode's tool is run. Any other request is a question,
    which the scenario's user answers.
    """
    if isinstance(asked, Content) and asked.type == "function_approval_request":
        return asked.to_function_approval_response(approved=True)
    episode = current_episode()
    if isinstance(asked, Content) and asked.type == "function_call":
        given: Any = asked.arguments or {}
        text = await episode.use_tool(asked.name or "", given, call_id=asked.call_id)
        return Content.from_function_result(call_id=asked.call_id or "", result=text)
    return episode.answer_to(_text(asked))


def _text(output: Any) -> str:
    """Return the text of a workflow's output; JSON for an object without text."""
    if isinstance(output, AgentResponse | Message):
        return output.text
    if isinstance(output, list) and output and isinstance(output[-1], Message):
        return output[-1].text
    return text_of(output)


class _AgentFramework(ClientFramework):
    """Agents, workflows, tools and chat clients of Agent Framework."""

    AGENTS, TOOLS, MODEL = (Agent, Workflow), FunctionTool, BaseChatClient
    conversation = _Conversation

    def patch(self) -> None:
        _patch_agents()
        _patch_clients()
        _patch_tools()
        _patch_servers()

    def model(self, client: Any, name: str) -> Any:
        made: Any = OpenAIChatCompletionClient(model=name, async_client=client)
        made.function_invocation_configuration |= {
            "max_iterations": _MOST,
            "max_consecutive_errors_per_request": _MOST,
        }
        return made

    def tool(self, spec: ToolSpec, run: Run) -> Any:
        async def call(**arguments: Any) -> str:
            return await run(arguments, None)

        made = FunctionTool(
            name=spec.name,
            description=spec.description,
            func=call,
            input_model=spec.parameters,
        )

        async def invoke(
            *, arguments: Any = None, tool_call_id: str | None = None, **named: Any
        ) -> Any:
            text = await run(_as_written(made, arguments), tool_call_id)
            return FunctionTool.parse_result(text)

        vars(made)["invoke"] = invoke  # error texts as in other frameworks
        return made

    def default_agent(
        self, name: str, model: Any, tools: list[Any], settings: Settings
    ) -> Any:
        return Agent(model, settings.system_prompt or None, name=name, tools=tools)

    def on_model(self, agent: Any, model: Any) -> Any:
        if not isinstance(agent, Workflow):
            return _agent_on_model(agent, model)
        return _workflow_copied(agent, partial(_agent_on_model, model=model), model)

    def acts(self, value: Any) -> bool:
        if isinstance(value, Workflow):
            return True
        is_agent = isinstance(value, Agent)
        return is_agent and bool(value.default_options.get("tools") or value.mcp_tools)

    def function(self, tool: Any) -> Any:
        return tool.func

    def passes_control(self, tool: Any) -> bool:
        module = getattr(tool.func, "__module__", None) or ""
        if module.startswith("agent_framework"):
            return module != _mcp.__name__
        return super().passes_control(tool)

    def spec(self, tool: Any) -> ToolSpec:
        read = None if tool.input_model is None else tool.input_model.model_validate
        return spec_of(tool.name, tool.description, tool.parameters(), read)

    async def run(self, tool: Any, arguments: dict[str, Any]) -> Any:
        contents: list[Content] = await tool.invoke(arguments=arguments)
        return "\n".join(each.text or "" for each in contents if each.type == "text")


FRAMEWORK = _AgentFramework()
