"""A folder with a module of tools and a tasks file."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.tool_tasks.shop import SOURCE, lines, write


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Go to a new folder with shop_tools.py and orders.jsonl; return the latter."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "shop_tools.py").write_text(SOURCE)
    yield write(tmp_path / "orders.jsonl", lines())
    sys.modules.pop("shop_tools", None)
