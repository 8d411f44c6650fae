"""agentgym solve, against a server that plays the roles."""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from agentgym.cli.main import main
from agentgym.security.audit import default_log
from tests.rollout.scripted_llm import calling
from tests.rollout.stub_server import StubServer, completion

NOWHERE = "http://127.0.0.1:9/v1#none"
FLIP = "def flip(text):\n    return text[::-1]\n"
TEST = (
    "from solution import flip\n\n\ndef test_flip():\n    assert flip('ab') == 'ba'\n"
)


def answer(messages: list[dict[str, Any]]) -> tuple[str, dict[str, Any]] | str:
    """Return a call, or the text, of the role that the system prompt names."""
    system, last = messages[0]["content"], messages[-1]
    if "You lead" in system:
        facts = last["content"]
        to = "finish"
        if "Code: none" in facts:
            to = "generator"
        elif "Tests: not run" in facts:
            to = "executor"
        return "hand_over", {"to": to}
    if last["role"] == "tool":
        return "Done."
    if "You write code" in system:
        return "write_file", {"path": "solution.py", "text": FLIP}
    return "run_tests", {}


async def respond(request: web.Request, body: dict[str, Any]) -> web.Response:
    """Answer for the role that is asked."""
    made = answer(body["messages"])
    message: dict[str, Any] = {"role": "assistant", "content": made}
    if not isinstance(made, str):
        message = calling(made[0], **made[1])
    return web.json_response(completion(message=message))


@pytest.fixture
def server() -> Iterator[str]:
    with StubServer(respond) as made:
        yield f"{made.endpoint}#roles"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_solution.py").write_text(TEST)
    return tmp_path


def run(*words: str) -> int:
    return main(["solve", "coding", *words])


@pytest.mark.slow
def test_the_team_is_seen_at_work(
    server: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(
        *("--problem", "Flip a text", "--file", "tests/test_solution.py"),
        *("--model", server, "--save", "out", "--price-in", "1", "--price-out", "2"),
    )
    shown = capsys.readouterr().out
    assert code == 0
    assert "supervisor  -> generator" in shown
    assert "generator   write_file: Wrote solution.py." in shown
    assert "executor    = 1 tests passed, 0 failed" in shown
    assert "Solved: all tests pass." in shown
    assert "cost" in shown
    assert (project / "out" / "solution.py").read_text() == FLIP
    assert not (project / "solution.py").exists()
    log = default_log().read_text()
    assert "sha256" in log
    for said in ("Flip a text", "def flip", "test_solution", "solution.py"):
        assert said not in log


@pytest.mark.slow
def test_without_tests_it_is_not_proven(
    server: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    roles = ("supervisor", "generator", "reviewer", "executor")
    models = ",".join(f"{role}={server}" for role in roles)
    assert run("--problem", "Flip", "--models", models, "--json") == 1
    captured = capfd.readouterr()
    assert "there are no tests that prove it" in captured.err
    assert "return text[::-1]" in captured.err
    record = json.loads(captured.out)
    assert record["outcome"] == "untested"
    assert record["usage"]["generator"]["prompt_tokens"] == 6


@pytest.mark.slow
def test_chat_goes_on(
    server: str,
    project: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = iter(["make it faster"])

    def read(prompt: str = "") -> str:
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", read)
    words = ("--problem", "Flip", "--file", "tests/test_solution.py", "--chat")
    assert run(*words, "--model", server) == 1  # the second request changed nothing
    shown = capsys.readouterr().out
    assert shown.count("supervisor  -> generator") >= 2
    assert "Solved: all tests pass." in shown


@pytest.mark.slow
def test_a_question_may_name_any_file(
    server: str,
    project: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = answer

    def odd(messages: list[dict[str, Any]]) -> tuple[str, dict[str, Any]] | str:
        made = plain(messages)
        if made[0] != "write_file":
            return made
        return "write_file", {"path": "[/x].py", "text": "import subprocess\n"}

    monkeypatch.setattr(sys.modules[__name__], "answer", odd)
    monkeypatch.setattr("builtins.input", lambda prompt="": "no")
    run("--problem", "Flip", "--model", server, "--human", "--max-rounds", "1")
    shown = capsys.readouterr().out
    assert "Keep this change of [/x].py?" in shown
    assert "MarkupError" not in shown


@pytest.mark.slow
def test_files_that_cannot_be_saved_are_shown(
    server: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "out" / "solution.py").mkdir(parents=True)
    assert run("--problem", "Flip", "--model", server, "--save", "out") == 2
    captured = capsys.readouterr()
    assert "return text[::-1]" in captured.out
    assert "Cannot write" in captured.err


@pytest.mark.slow
def test_ctrl_c_keeps_the_files_before_it_waits_for_anything(
    server: str,
    project: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process is ended soon after Ctrl-C, whatever its threads do."""
    from agentgym.plugins.team.screens import TeamLines

    saved = project / "out" / "solution.py"
    seen: list[bool] = []

    def hang() -> None:
        for _ in range(200):
            if saved.exists():
                break
            time.sleep(0.05)
        seen.append(saved.exists())

    def stop(lines: TeamLines, event: Any) -> None:
        if event.tool == "write_file":
            asyncio.get_running_loop().run_in_executor(None, hang)
            raise KeyboardInterrupt

    monkeypatch.setattr(TeamLines, "__call__", stop)
    assert run("--problem", "Flip", "--model", server, "--save", "out") == 130
    assert seen == [True]
    assert saved.read_text() == FLIP
    assert "Interrupted. Saved: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", NOWHERE], "Which problem?"),
        (["--problem", "x", "--model", NOWHERE, "--models", "a"], "takes role=model"),
        (["--problem", "x", "--model", NOWHERE, "--price-in", "1"], "both --price-in"),
        (
            ["--problem", "x", "--model", NOWHERE, "--save", "/dev/null/x"],
            "cannot write",
        ),
        (["--problem", "x", "--model", NOWHERE, "--language", "go!"], "No language"),
    ],
)
def test_bad_input(
    words: list[str], message: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 2
    assert message in capsys.readouterr().err
