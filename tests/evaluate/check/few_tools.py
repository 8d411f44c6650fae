"""An application with one tool, and functions that score its calls."""

from dataclasses import replace
from typing import Any

from agentgym.core.task import Task
from agentgym.core.tools import Tool, spec_of
from agentgym.core.trajectory import ToolCall


def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"{city}: sunny"


TOOLS = [get_weather]
UNDESCRIBED = [Tool(replace(spec_of(get_weather), description=""), get_weather)]


def any_call(task: Task, calls: list[ToolCall], state: dict[str, Any]) -> bool:
    """Pay any call."""
    return bool(calls)


def no_call(task: Task, calls: list[ToolCall], state: dict[str, Any]) -> float:
    """Pay for a third of what is possible where nothing is called."""
    return 0.0 if calls else 1 / 3
