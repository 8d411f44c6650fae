"""The picture of a run's end, and the script that draws it."""

import re
import sys
from pathlib import Path

import pytest

from docs.run_picture import COMMAND, draw, record

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "run-end.svg"


def shown(picture: Path) -> str:
    """Return a picture's text; fail if it would load anything."""
    svg = picture.read_text()
    loaded = re.findall(r"url\(([^#)][^)]*)\)|href=|@import", svg)
    assert loaded == []
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    return "".join(texts).replace("&#160;", " ")


def test_the_picture_is_of_a_run_that_ended() -> None:
    text = shown(PICTURE)
    assert COMMAND in text
    assert all(part in text for part in ("before", "after", "pass^1", "832 rollouts"))


def test_what_a_command_writes_last_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    code = r"print('live\x1b[?25h\x1b[32mdone\x1b[0m')"
    draw(record([sys.executable, "-c", code]), tmp_path / "end.svg")
    assert shown(tmp_path / "end.svg").split()[-2:] == ["…", "done"]
