"""The same function as a tool of five frameworks: its defaults are made by functions.

A JSON schema shows no default of a ``default_factory``.
"""

from dataclasses import dataclass, field

from agent_framework import FunctionTool
from agents import function_tool
from llama_index.core.tools import FunctionTool as LlamaTool
from pydantic import BaseModel, Field
from pydantic_ai import Tool
from strands import tool


class Style(BaseModel):
    colour: str = "black"
    tags: list[str] = Field(default_factory=list)


@dataclass
class Place:
    x: int
    style: Style = field(default_factory=Style)


def draw(shape: str, at: Place, style: Style | None = None) -> str:
    """Draw a shape."""
    return f"{shape} at {at.x}"


pydantic_ai = Tool(draw)
strands = tool(draw)
llamaindex = LlamaTool.from_defaults(draw)
openai_agents = function_tool(strict_mode=False)(draw)
agent_framework = FunctionTool(name="draw", description="Draw a shape.", func=draw)
