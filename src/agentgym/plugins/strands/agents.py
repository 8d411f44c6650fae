"""Read the agents of Strands, and redirect their models and tools in an episode.

If an agent calls a tool and the current episode has a tool of the same name, the
episode's tool is run. Some of the patched parts are not public: a test fails when a
new version of Strands changes them.
"""

import copy
import json
from collections.abc import AsyncGenerator, Callable
from functools import partial, wraps
from typing import Any

from strands import Agent
from strands.agent._concurrency import _ConcurrencyController
from strands.agent.state import AgentState
from strands.handlers.callback_handler import null_callback_handler
from strands.hooks import HookRegistry
from strands.interrupt import _InterruptState
from strands.models import Model
from strands.models.openai import OpenAIModel
from strands.tools._caller import _ToolCaller
from strands.tools.tools import PythonAgentTool
from strands.types._events import ToolInterruptEvent, ToolResultEvent
from strands.types.tools import AgentTool

from agentgym.core.tools import ToolSpec, parse_arguments
from agentgym.errors import ToolError
from agentgym.integrations.client_adapter import (
    UNREADABLE,
    ClientConversation,
    ClientFramework,
    Run,
    Settings,
    asking,
    patch_model_of,
    spec_of,
    text_of,
)
from agentgym.integrations.episode import current_episode
from agentgym.integrations.in_place import called, episode_of_call
from agentgym.integrations.redirect import patch_methods, replace_calls

_NAME = "strands"


class StrandsModel(OpenAIModel):
    """OpenAI's model of Strands, which keeps arguments that are not a JSON object."""

    def as_role(self, name: str) -> "StrandsModel":
        """Return a copy that sends an agent's name with each request."""
        made = copy.copy(self)
        made._custom_client = self._custom_client.as_role(name)
        return made

    async def stream(self, *args: Any, **named: Any) -> AsyncGenerator[Any]:
        """Yield the events of an answer, with the arguments of a call in one event."""
        text = ""
        async for event in super().stream(*args, **named):
            delta: Any = event.get("contentBlockDelta", {}).get("delta", {})
            if "toolUse" in delta:
                text += delta["toolUse"].get("input") or ""
                continue
            if "contentBlockStop" in event and text:
                is_read = parse_arguments(text) is not None
                written = text if is_read else json.dumps({UNREADABLE: text})
                delta, text = {"toolUse": {"input": written}}, ""
                yield {"contentBlockDelta": {"delta": delta}}
            yield event

    def format_request(self, *args: Any, **named: Any) -> dict[str, Any]:
        """Return a request, whose messages are texts where they have only text."""
        made = super().format_request(*args, **named)
        for message in made["messages"]:
            parts = message.get("content")
            if isinstance(parts, list) and all(x["type"] == "text" for x in parts):
                message["content"] = "\n".join(x["text"] for x in parts)
        return made

    @classmethod
    def format_request_message_tool_call(cls, tool_use: Any, **named: Any) -> Any:
        """Return a call in OpenAI's format, with the arguments as they were written."""
        made = super().format_request_message_tool_call(tool_use, **named)
        if isinstance(written := _arguments_of(tool_use), str):
            made["function"]["arguments"] = written
        return made


def _arguments_of(tool_use: Any) -> Any:
    """Return a call's arguments: a dict, or the text if they are not JSON."""
    return tool_use["input"].get(UNREADABLE, tool_use["input"])


def _result_of(tool_use: Any, text: str) -> Any:
    """Return the result of a call in Strands' format."""
    status = "error" if text.startswith("Error:") else "success"
    named = {"toolUseId": tool_use["toolUseId"], "status": status}
    return {**named, "content": [{"text": text}]}


def _copied(agent: Any, *, quiet: bool = False) -> Any:
    """Return a copy of an agent; a quiet one prints nothing and saves no session."""
    made = copy.copy(agent)
    made.messages, made.state = [*agent.messages], AgentState(agent.state.get())
    made.tool_caller, made._interrupt_state = _ToolCaller(made), _InterruptState()
    made._concurrency = _ConcurrencyController(agent._concurrency._mode)
    if quiet:
        made.callback_handler, made.hooks = null_callback_handler, HookRegistry()
        for event, entries in agent.hooks._registered_callbacks.items():
            kept = [x for x in entries if not _is_of(x, agent._session_manager)]
            made.hooks._registered_callbacks[event] = kept
    return made


def _is_of(entry: Any, manager: Any) -> bool:
    """Return whether a hook is one of a session manager."""
    cells = getattr(entry.callback, "__closure__", None) or ()
    held = [
        getattr(entry.callback, "__self__", None),
        *(x.cell_contents for x in cells),
    ]
    return manager is not None and any(each is manager for each in held)


class _Paused(Exception):
    """A tool waits for a person."""


async def _last(events: Any) -> Any:
    event = None
    async for event in events:
        if isinstance(event, ToolInterruptEvent):
            raise _Paused(event)
    return event


def _read(event: Any) -> Any:
    """Return the text that the model reads of a tool's last event."""
    result = event.tool_result if isinstance(event, ToolResultEvent) else event
    parts = [x.get("text") or json.dumps(x.get("json", "")) for x in result["content"]]
    if result["status"] == "error":
        raise ToolError("\n".join(parts).removeprefix("Error: "))
    return "\n".join(parts)


def _streaming(stream: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(stream)
    async def routed(
        self: Any, tool_use: Any, invocation_state: Any, **named: Any
    ) -> AsyncGenerator[Any]:
        name, events = self.tool_name, stream(self, tool_use, invocation_state, **named)
        passes_control: Any = partial(FRAMEWORK.passes_control, self)
        if episode_of_call(name, passes_control) is None:
            model = getattr(invocation_state.get("agent"), "model", None)
            while True:
                with asking(_NAME, model, StrandsModel):  # not for the yield
                    event = await anext(events, None)
                if event is None:
                    return
                yield event
        try:
            yield await called(
                name,
                _arguments_of(tool_use),
                lambda _: _last(events),
                passes_control,
                answer=lambda text: ToolResultEvent(_result_of(tool_use, text)),
                call_id=tool_use["toolUseId"],
                read=_read,
                not_done=(_Paused,),
            )
        except _Paused as paused:
            yield paused.args[0]

    return routed


class _Conversation(ClientConversation):
    async def answer(self, asked: Any) -> str:
        """Run the agent; meanwhile, answer its interrupts."""
        agent = self._state
        result = await agent.invoke_async(asked)
        while result.stop_reason == "interrupt":
            answered = []
            for each in result.interrupts:
                said = current_episode().answer_to(text_of(each.reason or each.name))
                answered.append({"interruptId": each.id, "response": said})
            given = [{"interruptResponse": each} for each in answered]
            result = await agent.invoke_async(given)
        return text_of(result.structured_output or str(result).rstrip("\n"))


class _StrandsFramework(ClientFramework):
    """Agents, tools and models of Strands."""

    AGENTS, TOOLS, MODEL = Agent, AgentTool, Model
    conversation = _Conversation

    def patch(self) -> None:
        replace_calls(Model, ("stream", "structured_output"), _NAME)
        patch_methods(AgentTool, ("stream",), _streaming)
        patch_model_of(Agent, _NAME, self)

    def model(self, client: Any, name: str) -> Any:
        return StrandsModel(client=client, model_id=name)

    def tool(self, spec: ToolSpec, run: Run) -> Any:
        async def call(tool_use: Any, **_: Any) -> Any:
            text = await run(_arguments_of(tool_use), tool_use["toolUseId"])
            return _result_of(tool_use, text)

        known: Any = {"name": spec.name, "description": spec.description}
        known["inputSchema"] = {"json": spec.parameters}
        return PythonAgentTool(spec.name, known, call)

    def default_agent(
        self, name: str, model: Any, tools: list[Any], settings: Settings
    ) -> Any:
        prompt = settings.system_prompt or None
        given = {"name": name, "system_prompt": prompt, "tools": tools}
        return Agent(model, callback_handler=None, **given)

    def on_model(self, agent: Any, model: Any) -> Any:
        made = _copied(agent)
        made.model = model
        return made

    def begin(self, agent: Any) -> Any:
        """Return a copy of an agent, which prints nothing and saves no session."""
        return _copied(agent, quiet=True)

    def function(self, tool: Any) -> Any:
        return getattr(tool, "_tool_func", None)

    def passes_control(self, tool: Any) -> bool:
        return hasattr(tool, "_agent") or super().passes_control(tool)

    def spec(self, tool: Any) -> ToolSpec:
        said, metadata = tool.tool_spec, getattr(tool, "_metadata", None)
        read = None if metadata is None else metadata.validate_input
        schema = said["inputSchema"].get("json", said["inputSchema"])
        return spec_of(said["name"], said["description"], schema, read)

    async def run(self, tool: Any, arguments: dict[str, Any]) -> Any:
        asked = {"toolUseId": "call", "name": tool.tool_name, "input": arguments}
        return _read(await _last(tool.stream(asked, {})))


FRAMEWORK = _StrandsFramework()
