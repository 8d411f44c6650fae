"""An application with one tool, and functions that score its calls."""

from dataclasses import replace
from typing import Any, Literal

from agentgym.core.task import Task
from agentgym.core.tools import Tool, spec_of
from agentgym.core.trajectory import ToolCall


def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"{city}: sunny"


def note_side(side: Literal["left", "right"]) -> str:
    """Note the side of a fault."""
    return side


def note_kind(kind: Literal["crack", "noise"]) -> str:
    """Note the kind of a fault."""
    return kind


def solve(fault: str) -> str:
    """Solve a fault."""
    return fault


def give_up(fault: str) -> str:
    """Hand a fault over to a person."""
    return fault


TOOLS = [get_weather]
FAULTS = [note_side, note_kind, solve, give_up]
UNDESCRIBED = [Tool(replace(spec_of(get_weather), description=""), get_weather)]


def any_call(task: Task, calls: list[ToolCall], state: dict[str, Any]) -> bool:
    """Pay any call."""
    return bool(calls)


def no_call(task: Task, calls: list[ToolCall], state: dict[str, Any]) -> float:
    """Pay for a third of what is possible where nothing is called."""
    return 0.0 if calls else 1 / 3
