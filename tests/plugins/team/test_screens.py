"""What a team says, line by line: any model's text stays text."""

import io

import pytest
from rich.console import Console

from agentgym.plugins.team.screens import TeamLines
from agentgym.plugins.team.solving.events import TeamEvent


@pytest.mark.parametrize("odd", ["\ud800", "\x1b[31m", "\x00", "\u202e"])
def test_odd_characters_of_a_model_are_replaced(odd: str) -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
    TeamLines(Console(file=file))(TeamEvent("said", "generator", f"one{odd}two"))
    shown = raw.getvalue().decode()
    assert shown.startswith("generator   one\ufffd")
    assert odd[0] not in shown
    assert "two" in shown
