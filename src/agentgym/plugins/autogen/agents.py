"""AutoGen's agents, teams, tools and model clients.

Most of the inspected attributes are private in AutoGen: a test fails when a new version
changes them.
"""

import logging
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from autogen_agentchat.agents import (
    AssistantAgent,
    CodeExecutorAgent,
    UserProxyAgent,
)
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.messages import BaseChatMessage
from autogen_core import CancellationToken, MessageHandlerContext
from autogen_core.memory import ListMemory
from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    ModelInfo,
)
from autogen_core.tools import (
    BaseTool,
    ParametersSchema,
    StaticWorkbench,
    ToolSchema,
    Workbench,
)
from autogen_core.tools import Tool as AutoGenTool
from autogen_ext.models.openai import OpenAIChatCompletionClient
from pydantic import BaseModel

from agentgym.core.agent import Trained
from agentgym.core.background import in_background
from agentgym.core.tools import Tool, ToolSpec
from agentgym.errors import ToolError, UnsupportedError
from agentgym.integrations.client_adapter import (
    ClientConversation,
    ClientFramework,
    ClientLoop,
    Run,
    Servers,
    Settings,
    TrainedEndpoint,
    spec_of,
)
from agentgym.integrations.episode import EpisodeCut, episode_or_none
from agentgym.integrations.in_place import live_tool
from agentgym.integrations.transport import speaking_as
from agentgym.plugins.autogen import redirect
from agentgym.plugins.autogen.copies import Copies
from agentgym.scenarios.schemas import spec_of_model

_MODEL_SLOTS = ("model_client", "_model_client")
_PARTS = (BaseTool, ChatAgent, Team, Workbench)
_NOT_WITHIN = ("_handoff_tools", "_handoffs", "_input_participants")
_NO_LEDGER = "Failed to parse ledger information"
_NO_SPEAKER = "the ledger of MagenticOneGroupChat names a speaker that there is not"
POLICY_INFO = ModelInfo(
    vision=False,
    function_calling=True,
    json_output=True,
    family="unknown",
    structured_output=True,
    multiple_system_messages=True,  # else AutoGen joins and strips them
)
"""The abilities of the trained model, in AutoGen's format."""


class PlainOpenAIClient(OpenAIChatCompletionClient):
    """AutoGen's OpenAI client, but it sends tools without the field ``strict``.

    AutoGen adds ``strict: false``. Chat templates would write this field into the
    prompt. Without the field, servers assume the same value.

    Messages and tools are passed in the argument ``extra_body``, which the openai
    package sends unchecked. In other arguments, the package would compare them with its
    type annotations, which takes longer than sending them. The JSON is the same.
    """

    def _process_create_args(self, *args: Any, **named: Any) -> Any:
        params = super()._process_create_args(*args, **named)
        for tool in params.tools:
            if tool["function"].get("strict") is False:
                del tool["function"]["strict"]
        if params.response_format is not None:
            return params  # openai needs the tools to parse the answer
        body: dict[str, Any] = {"messages": params.messages}
        if params.tools:
            body["tools"] = params.tools
        body |= params.create_args.get("extra_body") or {}
        options = {**params.create_args, "extra_body": body}
        return replace(params, messages=[], tools=[], create_args=options)


class TrainedClient(PlainOpenAIClient):
    """Calls a trained model, in this process or on a server."""

    def __init__(self, endpoint: TrainedEndpoint) -> None:
        options: dict[str, Any] = {}
        if endpoint.transport is not None:
            usage = {"include_usage": True}  # else streams count no tokens
            options = {"max_retries": 0, "stream_options": usage}
            options["http_client"] = endpoint.http()
        super().__init__(
            model=endpoint.model,
            base_url=endpoint.base_url,
            api_key=endpoint.api_key,
            temperature=endpoint.temperature,
            max_tokens=endpoint.max_tokens,
            model_info=POLICY_INFO,
            **options,
        )
        self._transport = endpoint.transport

    def count_tokens(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[AutoGenTool | ToolSchema] = (),
    ) -> int:
        """Return the number of tokens in the prompt; AutoGen's estimate for servers."""
        if self._transport is None:
            return super().count_tokens(messages, tools=tools)
        return self._room(messages, tools)[0]

    def remaining_tokens(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[AutoGenTool | ToolSchema] = (),
    ) -> int:
        """Return how many more tokens fit into the model's context after the prompt."""
        if self._transport is None:
            return super().remaining_tokens(messages, tools=tools)
        return self._room(messages, tools)[1]

    def _room(
        self, messages: Sequence[LLMMessage], tools: Sequence[AutoGenTool | ToolSchema]
    ) -> tuple[int, int]:
        params = self._process_create_args(messages, tools, "auto", None, {})
        found: tuple[int, int] = self._transport.room(params.create_args["extra_body"])
        return found


class GatewayClient(PlainOpenAIClient):
    """Calls the training gateway, and sends the calling agent's name."""

    async def create(self, *args: Any, **named: Any) -> CreateResult:
        """Send a request to the policy, with the name of the active team member."""
        with _as_member():
            return await super().create(*args, **named)

    async def create_stream(
        self, *args: Any, **named: Any
    ) -> AsyncGenerator[str | CreateResult]:
        """Send a request like :meth:`create`, and stream the answer."""
        pieces = super().create_stream(*args, **named)
        while True:
            with _as_member():  # not around the yield: the consumer has its own context
                piece = await anext(pieces, None)
            if piece is None:
                return
            yield piece


@contextmanager
def _as_member() -> Iterator[None]:
    """Send the name of the active team member, if any, with requests in the block."""
    try:
        member = MessageHandlerContext.agent_id().type
    except RuntimeError:  # an agent without a team
        yield
        return
    with speaking_as(member.rpartition("_")[0] or member):  # a team appends its own id
        yield


class AutoGenSpecTool(BaseTool[BaseModel, Any]):
    """A tool whose arguments are validated by AgentGym, not by AutoGen.

    So the model reads the same error messages in training with any framework.
    """

    def __init__(self, spec: ToolSpec, run: Run) -> None:
        super().__init__(spec.args_model, str, spec.name, spec.description)
        self.spec = spec
        self._run = run
        self._schema = ToolSchema(
            name=spec.name,
            description=spec.description,
            parameters=cast(ParametersSchema, spec.parameters),
        )

    @property
    def schema(self) -> ToolSchema:
        """The tool's schema for the model, created once."""
        return self._schema

    async def run(self, args: BaseModel, cancellation_token: CancellationToken) -> str:
        """Run the tool on validated arguments; agents call ``run_json`` instead."""
        return await self._run(dict(args), None)

    async def run_json(
        self,
        args: Mapping[str, Any],
        cancellation_token: CancellationToken,
        call_id: str | None = None,
    ) -> str:
        """Run the tool on the arguments as the model wrote them."""
        return await self._run(redirect.written(args), call_id)


def _parts(agent: Any) -> list[Any]:
    """Return an agent or team, and all agents, teams, tools and workbenches in it.

    Each part is listed once, after the part that contains it. The agent or team that a
    tool runs is a part of that tool.
    """
    found: dict[int, Any] = {}
    waiting = [agent]
    while waiting:
        part = waiting.pop(0)
        if id(part) in found:
            continue
        if isinstance(part, _PARTS):
            found[id(part)] = part
            held = vars(part)
            waiting[:0] = [held[name] for name in held if name not in _NOT_WITHIN]
        elif isinstance(part, dict):
            waiting[:0] = part.values()
        elif isinstance(part, list | tuple):
            waiting[:0] = part
    return list(found.values())


def _notes(agent: Any) -> list[str]:
    """Return notes for the user on how an agent or team behaves in training."""
    found = []
    for part in _parts(agent):
        if isinstance(part, UserProxyAgent):
            found.append(f"The scenario's user answers instead of {part.name!r}.")
        if isinstance(part, CodeExecutorAgent):
            kind = type(part._code_executor).__name__
            found.append(f"{part.name!r} really runs the policy's code, by {kind}.")
        for memory in getattr(part, "_memory", None) or ():
            if not isinstance(memory, ListMemory):
                found.append(
                    f"The memory of {part.name!r}, {type(memory).__name__}, is shared "
                    "by all rollouts: each reads the entries of the others."
                )
    return found


def _model_of(holder: Any) -> ChatCompletionClient | None:
    """Return the model client of an agent or team; None if there is none."""
    held = [getattr(holder, name, None) for name in _MODEL_SLOTS]
    return next((x for x in held if isinstance(x, ChatCompletionClient)), None)


async def _listed(bench: Workbench) -> list[Any]:
    if isinstance(bench, StaticWorkbench):
        return list(await bench.list_tools())
    async with bench:  # close servers: episodes use another event loop
        return list(await bench.list_tools())


def _calling(bench: Workbench, name: str) -> Callable[[dict[str, Any]], Awaitable[str]]:
    servers = Servers()

    async def run(arguments: dict[str, Any]) -> str:
        await servers.open(bench, bench)
        found = await bench.call_tool(name, arguments, CancellationToken())
        if found.is_error:
            raise ToolError(found.to_text())
        return found.to_text()

    return run


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether to keep a log record; False if its episode was cut short."""
    episode = episode_or_none()
    return episode is None or episode.cut is None


class _Conversation(ClientConversation):
    """Runs an agent or team once per message of the user.

    The agent or team itself keeps the earlier messages.
    """

    async def answer(self, asked: Any) -> str:
        messages = asked if isinstance(asked, list | tuple) else [asked]
        are_messages = all(isinstance(each, BaseChatMessage) for each in messages)
        if not isinstance(asked, str) and not (messages and are_messages):
            raise self._loop.wrong_input(
                asked,
                "an input of the agent's run(task=...): text, or messages of AutoGen's",
            )
        try:
            result = await self._state.run(task=asked)
        except (RuntimeError, ValueError) as error:
            if _NO_LEDGER in str(error):
                raise EpisodeCut("wrong form", _NO_SPEAKER) from error
            raise
        said = [m for m in result.messages if isinstance(m, BaseChatMessage)]
        return said[-1].to_text() if said else ""


class _AutoGenFramework(ClientFramework):
    """Agents, teams, tools and model clients of AutoGen."""

    AGENTS, TOOLS = (ChatAgent, Team), (BaseTool, Workbench)
    MODEL = ChatCompletionClient
    conversation = _Conversation

    def patch(self) -> None:
        redirect.patch()

    def model(self, client: Any, name: str) -> Any:
        """Return a model client with the address, key and HTTP client of ``client``."""
        options: dict[str, Any] = {  # AutoGen's client makes its own client of openai's
            "model": name,
            "base_url": str(client.base_url),
            "api_key": client.api_key,
            "http_client": client._client,
            "max_retries": 0,
            "model_info": POLICY_INFO,
        }
        return GatewayClient(**options)

    def tool(self, spec: ToolSpec, run: Run) -> Any:
        return AutoGenSpecTool(spec, run)

    def default_agent(
        self, name: str, model: Any, tools: list[Any], settings: Settings
    ) -> Any:
        return AssistantAgent(
            name,
            model,
            tools=tools,
            system_message=settings.system_prompt or None,
            max_tool_iterations=settings.max_turns,
        )

    def prepared(self, agent: Any, tools: list[Any], loop: ClientLoop) -> Any:
        """Return a maker of copies of ``agent``."""
        logging.getLogger("autogen_core").addFilter(_is_news)
        return Copies(agent, loop.model)

    def begin(self, agent: Any) -> Any:
        return agent.make()

    def members(self, agent: Any) -> dict[str, Any]:
        found = [x for x in _parts(agent) if isinstance(x, ChatAgent)]
        return {each.name: _model_of(each) for each in found}

    def notes(self, agent: Any) -> list[str]:
        return _notes(agent)

    def on_model(self, agent: Any, model: Any) -> Any:
        """Return a copy of an agent or team whose model clients are all ``model``.

        Functions, external workbenches and most other objects from libraries are shared
        with the original.
        """
        copies = Copies(agent, model)
        if not copies.clients:
            raise UnsupportedError(
                f"The model client of {agent!r} was not found. Give a factory "
                "instead: def make_agent(llm, tools)."
            )
        return copies.make()

    def trained_model(self, trained: Trained, at: TrainedEndpoint) -> Any:
        return TrainedClient(at)

    def acts(self, value: Any) -> bool:
        """Return whether an object is a team, or an agent with tools."""
        benches = getattr(value, "_workbench", None) or ()
        has_tools = any(getattr(bench, "_tools", True) for bench in benches)
        return isinstance(value, Team) or (isinstance(value, ChatAgent) and has_tools)

    def returned(self, tool: Any) -> Any:
        found = tool.return_type()
        return None if found is Any else found

    def spec(self, tool: Any) -> ToolSpec:
        if isinstance(tool, AutoGenSpecTool):
            return tool.spec
        return spec_of_model(tool.name, tool.description, tool.args_type())

    async def run(self, tool: Any, arguments: dict[str, Any]) -> str:
        try:
            found = await tool.run_json(arguments, CancellationToken())
        except Exception as error:
            raise ToolError(str(error)) from error  # AutoGen shows it to the model
        return str(tool.return_value_as_string(found))

    def tools_of(self, found: Any) -> list[Tool]:
        """Convert a tool, or all tools of a workbench, to AgentGym tools."""
        if isinstance(found, BaseTool):
            return super().tools_of(found)
        renamed = getattr(found, "_tool_overrides", None)
        if isinstance(found, StaticWorkbench) and not renamed:
            return [tool for each in found._tools for tool in self.tools_of(each)]
        return [
            live_tool(
                spec_of(x["name"], x.get("description"), x.get("parameters", {})),
                _calling(found, x["name"]),
            )
            for x in in_background(_listed(found))
        ]


FRAMEWORK = _AutoGenFramework()
