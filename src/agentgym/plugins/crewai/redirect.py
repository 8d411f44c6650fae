"""Redirect CrewAI's models and tools in an episode.

If an agent calls a tool and the current episode has a tool of the same name, the
episode's tool is run. Some of the patched methods are not public: a test fails when
CrewAI changes them.
"""

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from crewai.agents.agent_executor import AgentExecutor
from crewai.agents.cache.cache_handler import CacheHandler
from crewai.llms.base_llm import BaseLLM
from crewai.tools import BaseTool
from crewai.tools.structured_tool import CrewStructuredTool
from crewai.tools.tool_failure import ToolFailure
from crewai.utilities.converter import Converter
from crewai.utilities.string_utils import sanitize_tool_name
from pydantic_core import to_jsonable_python

from agentgym.core.background import call_in_thread, in_background
from agentgym.errors import ToolError
from agentgym.integrations.episode import episode_or_none
from agentgym.integrations.in_place import (
    called_sync,
    ending_episode,
    episode_of_call,
    runs_agent,
)
from agentgym.integrations.redirect import model_for, patch_methods, replace_calls
from agentgym.plugins.crewai.models import PlainLLM

_PASSING_ON = "crewai.tools.agent_tools"


def patch() -> None:
    """Patch models and tools, and the order and cache of tool calls."""
    replace_calls(BaseLLM, ("call", "acall"), "crewai")
    patch_methods(BaseLLM, ("get_input_tokens_count",), _counting)
    patch_methods(BaseTool, ("run",), _running)
    _patch_structured_tools()
    _patch_executors()
    _patch_caches()
    _patch_converters()


def _counting(count: Callable[..., int]) -> Callable[..., int]:
    """Return a method that counts no tokens for a model that is replaced.

    CrewAI asks the provider for the number before each call, and shortens the prompt.
    """

    @wraps(count)
    def routed(self: Any, *args: Any, **named: Any) -> int:
        is_replaced = model_for("crewai", is_call=False) is not None
        return 0 if is_replaced else count(self, *args, **named)

    return routed


def _patch_structured_tools() -> None:
    """Patch the form of tools that CrewAI runs for models without tool calls."""
    kind: Any = CrewStructuredTool
    invoke, ainvoke = kind.invoke, kind.ainvoke

    def routed(self: Any, input: Any, *args: Any, **named: Any) -> Any:
        if isinstance(input, dict) and _name_in_episode(self._original_tool):
            return self._original_tool.run(**input)
        return invoke(self, input, *args, **named)

    async def routed_async(self: Any, input: Any, *args: Any, **named: Any) -> Any:
        if isinstance(input, dict) and _name_in_episode(self._original_tool):
            return await call_in_thread(self._original_tool.run, **input)
        return await ainvoke(self, input, *args, **named)

    kind.invoke, kind.ainvoke = routed, routed_async


def _patch_executors() -> None:
    """Patch agents to run the calls of one message in their order in an episode."""
    kind: Any = AgentExecutor
    at_once = kind._should_parallelize_native_tool_calls

    def is_parallel(self: Any, calls: Any) -> bool:
        return episode_or_none() is None and bool(at_once(self, calls))

    kind._should_parallelize_native_tool_calls = is_parallel


def _patch_caches() -> None:
    """Patch the cache of results to be empty in an episode: results may change."""
    kind: Any = CacheHandler
    read = kind.read

    def read_outside(self: Any, *args: Any, **named: Any) -> Any:
        return None if episode_or_none() else read(self, *args, **named)

    kind.read = read_outside


def _name_in_episode(tool: Any) -> str | None:
    """Return a tool's name in the episode that runs its calls; None if none does."""
    if tool is None or hasattr(tool, "is_of_episode"):
        return None
    known_as = sanitize_tool_name(tool.name)  # CrewAI writes names in lower case
    current = episode_or_none()
    names = () if current is None else current.tools
    name = next((x for x in names if sanitize_tool_name(x) == known_as), known_as)

    def passes_on() -> bool:
        is_crewais = type(tool).__module__.startswith(_PASSING_ON)
        return is_crewais or runs_agent(function_of(tool))

    return None if episode_of_call(name, passes_on) is None else name


def _running(run: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(run)
    def routed(self: Any, *args: Any, **arguments: Any) -> Any:
        if args or (found := _name_in_episode(self)) is None:
            with ending_episode(self.name):
                return run(self, *args, **arguments)
        if (limit := self._claim_usage()) is not None:
            return limit
        return called_sync(
            found,
            to_jsonable_python(arguments),
            partial(_run_in_place, self),
            lambda: False,
            function=function_of(self),
            read=partial(text_read, self),
        )

    return routed


def _run_in_place(tool: Any, given: dict[str, Any]) -> Any:
    try:
        found = tool._run(**tool._validate_kwargs(given))
        return in_background(found) if inspect.isawaitable(found) else found
    except Exception as error:
        raise ToolError(str(error)) from error  # CrewAI shows it to the model


def text_read(tool: Any, found: Any) -> str:
    """Return the text that the model reads of a tool's result."""
    text = str(tool.format_output_for_agent(found))
    if isinstance(found, ToolFailure):
        raise ToolError(text)
    return text


def function_of(tool: Any) -> Any:
    """Return the function that a tool calls."""
    return getattr(tool, "func", None) or type(tool)._run


class _AskedInForm:
    """Converts an answer to JSON, as CrewAI does for ``output_pydantic``."""

    def __init__(self, converter: Any) -> None:
        self._converter = converter

    def to_json(self) -> str:
        """Return the text as JSON; if a request to the model fails, repeat it."""
        made = self._converter.to_pydantic(self._converter.max_attempts)
        return str(made.model_dump_json(indent=2))


def _patch_converters() -> None:
    """Ask the agent's own model for the JSON of a task's ``output_json``.

    CrewAI asks for it through the package instructor, which creates another client from
    the model's address or name. That client knows neither the episode nor the trained
    model.
    """
    kind: Any = Converter
    create = kind._create_instructor

    def _create_instructor(self: Any) -> Any:
        is_ours = isinstance(self.llm, PlainLLM)
        is_ours = is_ours or model_for("crewai") is not None
        return _AskedInForm(self) if is_ours else create(self)

    kind._create_instructor = _create_instructor
