"""``agentgym view``: the page that it opens, and what it refuses."""

import signal
import webbrowser
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.plugins.view.made_run import make_run


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Take the addresses that a browser would open, and press Ctrl-C."""
    found: list[str] = []

    def open_page(address: str) -> bool:
        found.append(address)
        signal.raise_signal(signal.SIGINT)
        return True

    monkeypatch.setattr(webbrowser, "open", open_page)
    return found


def test_a_folder_that_is_not_a_run_is_refused(
    agentgym: Command, tmp_path: Path
) -> None:
    (tmp_path / "notes").mkdir()
    ended = agentgym("view", str(tmp_path / "notes"), "--no-open")
    assert ended.code == 2
    assert "notes" in ended.err


def test_a_run_opens_its_own_page_and_several_open_the_list(
    agentgym: Command, tmp_path: Path, opened: list[str]
) -> None:
    for name in ("first", "second"):
        make_run(tmp_path / "runs" / name, steps=1)
    for words in (["first"], ["runs/second"], [], ["first", "second"]):
        ended = agentgym("view", *words)
        assert ended.code == 130
        assert opened[-1] in ended.out
    pages = [address.partition("#")[2] for address in opened]
    assert pages == ["/run/first", "/run/second", "", ""]


def test_a_folder_without_runs_says_how_to_start_one(
    agentgym: Command, tmp_path: Path, opened: list[str]
) -> None:
    text = " ".join(agentgym("view").out.split())
    assert "Open http://127.0.0.1:" in text
    assert "runs has no runs yet. Start one in another terminal" in text
    assert "agentgym train coding --framework langchain" in text
    assert "Ctrl-C ends it" in text
    assert opened
    assert not list(tmp_path.iterdir())
