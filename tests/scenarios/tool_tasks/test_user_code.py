"""Tools that a user names: whatever a framework or a client binds."""

import sys
from pathlib import Path

import pytest

from agentgym.core.tools import ToolSpec
from agentgym.errors import ScenarioError
from agentgym.scenarios.tool_tasks.user_code import load_tools

SOURCE = '''
from typing import Annotated, TypedDict

from pydantic import BaseModel

class Stock(TypedDict):
    """Copies of a book."""
    title: Annotated[str, ..., "its title"]

class Order(BaseModel):
    title: str
    copies: int = 1

def lend(title: str, days=7):
    return f"{title} for {days}"

SCHEMA = {"type": "object", "properties": {"title": {"type": "string"}}}
MESSAGES = {"name": "find", "description": "Find.", "input_schema": SCHEMA}
RESPONSES = {"type": "function", "name": "sell", "parameters": SCHEMA}
CHAT = {"type": "function", "function": {"name": "buy", "parameters": SCHEMA}}
MCP = {"name": "burn", "inputSchema": SCHEMA}

TOOLS = [Stock, Order, lend, MESSAGES, RESPONSES, CHAT, MCP]
BY_NAME = {"lend": lend, "find": MESSAGES}
NAMELESS = [{"parameters": SCHEMA}]
'''


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a module of tools into a folder, and return the folder."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "bound_desk.py").write_text(SOURCE)
    monkeypatch.delitem(sys.modules, "bound_desk", raising=False)
    return str(tmp_path)


def specs(name: str, folder: str) -> dict[str, ToolSpec]:
    tools = load_tools(f"bound_desk:{name}", folder)
    return {tool.spec.name: tool.spec for tool in tools}


def test_tools_are_what_frameworks_and_clients_bind(desk: str) -> None:
    found = specs("TOOLS", desk)
    names = ["Stock", "Order", "lend", "find", "sell", "buy", "burn"]
    assert [*found] == names
    assert all("title" in spec.parameters["properties"] for spec in found.values())
    assert found["Stock"].description == "Copies of a book."
    assert found["Order"].accepts({"title": "Dune", "copies": 2})
    assert not found["Order"].accepts({"copies": 2})
    assert found["lend"].accepts({"title": "Dune", "days": "three"})
    assert [*specs("BY_NAME", desk)] == ["lend", "find"]
    assert [*specs("CHAT", desk)] == ["buy"]


def test_a_schema_that_names_no_tool_is_refused(desk: str) -> None:
    with pytest.raises(ScenarioError, match="bound_desk:NAMELESS holds a tool .* name"):
        load_tools("bound_desk:NAMELESS", desk)
