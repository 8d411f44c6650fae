"""Redirect LangChain's chat models and tools in an agent's code.

In training, one model replaces every chat model, wherever the agent's code created that
chat model. If the agent calls a tool and the current episode has a tool of
the same name, the episode's tool is run. The patched methods are not public: a test
fails when a new version of LangChain changes them.
"""

import asyncio
import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from pydantic_core import to_jsonable_python

from agentgym.core.background import call_in_thread
from agentgym.integrations.client_adapter import left_out
from agentgym.integrations.episode import episode_or_none
from agentgym.integrations.in_place import (
    called,
    called_sync,
    episode_of_call,
)
from agentgym.integrations.langchain.graphs import (
    aliases_of,
    by_name,
    function_of,
    passes_control,
    returns_command,
)
from agentgym.integrations.redirect import holding, model_for
from agentgym.integrations.witness import saw

_SHAPING = ("tools", "tool_choice", "response_format", "stream")
"""Options of a call that the other model receives. The other options are
dropped, because only some providers accept them."""

_ROUTED = "_routed_to_the_episode"
_CALL_ID: ContextVar[str | None] = ContextVar("agentgym_call_id", default=None)
_WRITTEN: ContextVar[Any] = ContextVar("agentgym_written_arguments", default=None)


def _other(model: Any) -> Any:
    other = model_for("langchain", instead=model)
    return None if other is model else other


def _own_stop(model: Any) -> list[str] | None:
    """Return the stop sequences that a replaced model was created with, if any."""
    for name in ("stop", "stop_sequences"):
        if isinstance(found := getattr(model, name, None), str | list):
            return [found] if isinstance(found, str) else found
    return None


def _shaped(options: Mapping[str, Any]) -> dict[str, Any]:
    from langchain_core.utils.function_calling import convert_to_openai_tool

    kept = {name: options[name] for name in _SHAPING if name in options}
    if "tools" in kept:
        tools = [convert_to_openai_tool(tool) for tool in kept["tools"]]
        for tool in (each for each in tools if "function" not in each):
            left_out(tool)
        kept["tools"] = [tool for tool in tools if "function" in tool]
        if not kept["tools"]:
            kept = {k: v for k, v in kept.items() if not k.startswith("tool")}
    choice = kept.get("tool_choice")
    if isinstance(choice, dict) and "function" not in choice:  # Anthropic's form
        named = choice.get("name")
        function = {"type": "function", "function": {"name": named}}
        words = {"any": "required"}
        kind = choice.get("type")
        kept["tool_choice"] = function if named else words.get(str(kind), kind)
    return kept


def _routed(method: Callable[..., Any]) -> Callable[..., Any]:
    """Convert a method of chat models: the model set for the call, if any, answers."""

    def routed(self: Any, messages: Any, *args: Any, **options: Any) -> Any:
        if (other := _other(self)) is None:
            return method(self, messages, *args, **options)
        kept = {name: options[name] for name in ("run_manager",) if name in options}
        stop = options.get("stop") or _own_stop(self)
        return method(other, messages, *args, stop=stop, **kept, **_shaped(options))

    return routed


def patch_models(module: ModuleType) -> None:
    """Patch ``BaseChatModel`` so that chat models can be replaced."""
    base = module.BaseChatModel
    for name in ("_generate_with_cache", "_agenerate_with_cache", "stream", "astream"):
        setattr(base, name, _routed(getattr(base, name)))


def patch_tools(module: ModuleType) -> None:
    """Patch ``BaseTool``: run the current episode's tool of the same name, if any."""
    base = module.BaseTool
    run, arun = base.run, base.arun

    def routed_run(self: Any, tool_input: Any, *args: Any, **named: Any) -> Any:
        with _call(named.get("tool_call_id"), tool_input):
            return run(_in_episode(self), tool_input, *args, **named)

    async def routed_arun(self: Any, tool_input: Any, *args: Any, **named: Any) -> Any:
        with _call(named.get("tool_call_id"), tool_input):
            return await arun(_in_episode(self), tool_input, *args, **named)

    base.run, base.arun = routed_run, routed_arun


def patch_middleware(module: ModuleType) -> None:
    """Patch middleware so that one with only a sync version runs in async graphs."""
    kind = module.AgentMiddleware
    for name in ("wrap_model_call", "wrap_tool_call"):
        setattr(kind, f"a{name}", _in_thread(kind, name))


def _in_thread(kind: Any, name: str) -> Any:
    missing = getattr(kind, f"a{name}")

    async def wrap(self: Any, request: Any, handler: Any) -> Any:
        wrapped = getattr(self, name)
        if episode_or_none() is None or wrapped.__func__ is getattr(kind, name):
            return await missing(self, request, handler)
        loop = asyncio.get_running_loop()

        def ask(request: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(handler(request), loop).result()

        return await call_in_thread(wrapped, request, ask)

    return wrap


@contextmanager
def _call(call_id: str | None, written: Any) -> Iterator[None]:
    """Keep a call's id and arguments as they are before LangChain validates them."""
    with holding(_CALL_ID, call_id), holding(_WRITTEN, written):
        yield


def _in_episode(tool: Any) -> Any:
    """Return the tool, or a copy that calls the episode's tool of the same name."""
    if "_run" in vars(tool) or hasattr(tool, "is_of_episode"):
        return tool
    if episode_of_call(tool.name, lambda: passes_control(tool)) is None:
        return tool
    if returns_command(tool):
        saw(
            note=f"{tool.name} can change the graph's state (Command), which a "
            "recorded answer does not. If later steps depend on it, let it really run: "
            f"--tools live --allow-tool {tool.name}."
        )
    if _ROUTED not in vars(tool):
        vars(tool)[_ROUTED] = _patched(tool)
    return vars(tool)[_ROUTED]


def _patched(tool: Any) -> Any:
    known = frozenset(tool.args)
    aliases = aliases_of(tool)

    def asked() -> dict[str, Any]:
        written = _WRITTEN.get()
        if isinstance(written, str):  # a tool with one argument
            written = dict(zip(tool.args, [written], strict=False))
        found = by_name(written, aliases)
        return {k: to_jsonable_python(v) for k, v in found.items() if k in known}

    def _run(*args: Any, **named: Any) -> Any:
        run = _own_run(tool, type(tool)._run, args, named)
        return called_sync(tool.name, asked(), run, lambda: False, **_how(tool))

    async def _arun(*args: Any, **named: Any) -> Any:
        run = _own_run(tool, type(tool)._arun, args, named)
        return await called(tool.name, asked(), run, lambda: False, **_how(tool))

    made = copy.copy(tool)
    vars(made).update(_run=_run, _arun=_arun)  # they shadow the class's methods
    return made


def _own_run(
    tool: Any, run: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]
) -> Callable[[Any], Any]:
    """Return a function that runs a tool with the graph's arguments.

    A tool that takes ``ToolRuntime``, ``InjectedState`` or a config cannot run outside
    of its graph, and a ``Command`` that it returns takes effect only there.
    """
    from langchain_core.runnables.config import ensure_config

    takes_config = "config" in inspect.signature(run).parameters
    config = {"config": ensure_config()} if takes_config else {}
    return lambda _: run(tool, *args, **config, **named)


def _how(tool: Any) -> dict[str, Any]:
    """Return the arguments of :func:`called` that describe a tool."""
    from langchain_core.tools import ToolException
    from langgraph.errors import GraphBubbleUp

    def answer(text: str) -> Any:
        has_artifact = tool.response_format == "content_and_artifact"
        return (text, None) if has_artifact else text

    return {
        "call_id": _CALL_ID.get(),
        "function": function_of(tool),
        "read": _as_read,
        "answer": answer,
        "handled": (ToolException,),
        "not_done": (GraphBubbleUp,),
    }


def _as_read(returned: Any) -> Any:
    """Return the part of a tool's result that the model reads.

    This is the text of a ToolMessage, also inside a ``Command``, and the first item of
    a pair (content, artifact). Other results are returned unchanged.
    """
    from langchain_core.messages import ToolMessage
    from langgraph.types import Command

    if isinstance(returned, Command):
        update = returned.update if isinstance(returned.update, dict) else {}
        said = [m for m in update.get("messages", ()) if isinstance(m, ToolMessage)]
        return said[-1].text if said else "done"
    if isinstance(returned, ToolMessage):
        return returned.text
    if isinstance(returned, tuple) and len(returned) == 2:
        return returned[0]  # content and artifact
    return returned
