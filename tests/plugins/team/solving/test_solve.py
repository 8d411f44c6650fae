"""solve: the team at work on a request, with scripted models."""

import json
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.prices import Prices
from agentgym.errors import NotFoundError, SandboxError, UsageError
from agentgym.plugins.team.solving.solve import Solution
from agentgym.sandbox import SandboxConfig
from tests.plugins.team.coding_team import cast
from tests.plugins.team.coding_team.test_graph import (
    ASKED,
    LONG,
    RIGHT,
    RISKY,
    TESTS,
    good,
)


def solved(problem: str = ASKED, **options: Any) -> Solution:
    from agentgym import solve

    options.setdefault("models", good())
    options.setdefault("files", TESTS)
    return solve(problem, **options)


def roles(solution: Solution) -> list[str]:
    return [t["role"] for t in solution.history if t["role"] != "supervisor"]


def test_a_solution_has_files_tests_review_and_cost() -> None:
    generator = cast.writes(LONG)
    solution = solved(
        models=good(generator=generator),
        prices=Prices(prompt=1, response=2),
        sandbox=SandboxConfig(concurrency=1),
    )
    assert solution.passed
    assert solution.changed == ("solution.py",)
    assert solution.files["solution.py"] == LONG["solution.py"]
    assert solution.tests == {"passed": 1, "failed": 0, "failures": []}
    assert roles(solution) == ["generator", "reviewer", "executor"]
    assert {role: used.calls for role, used in solution.usage.items()} == {
        "supervisor": 4,
        "generator": 2,
        "reviewer": 3,
        "executor": 2,
    }
    assert solution.cost == 0.0  # the scripted models count no tokens
    assert json.loads(json.dumps(solution.record()))["outcome"] == "passed"


def test_events_come_while_it_works() -> None:
    events: list[tuple[str, str, str]] = []
    solved(listener=lambda e: events.append((e.kind, e.role, e.tool or e.text)))
    assert events[:2] == [
        ("asked", "supervisor", ""),
        ("tool", "supervisor", "hand_over"),
    ]
    assert ("tool", "generator", "write_file") in events
    assert ("said", "generator", "Written.") in events
    assert ("turn", "executor", "1 tests passed, 0 failed") in events
    assert {role for _, role, _ in events} == {"supervisor", "generator", "executor"}


def test_the_working_folder_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    solution = solved()
    assert list(tmp_path.iterdir()) == []
    [path] = solution.save(tmp_path / "out")
    assert path.read_text() == RIGHT["solution.py"]
    assert not (tmp_path / "out" / "tests").exists()


def test_saving_stays_below_the_folder(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "lib").symlink_to(outside)
    files = {"lib/x.py": "x = 1\n"}
    made = Solution(problem="p", outcome="untested", files=files, changed=("lib/x.py",))
    with pytest.raises(UsageError, match="outside of"):
        made.save(tmp_path / "out")
    assert list(outside.iterdir()) == []


class TestPerson:
    def asked(self, *answers: Any) -> Any:
        self.questions: list[Mapping[str, Any]] = []
        left = list(answers)

        def human(question: dict[str, Any]) -> Any:
            self.questions.append(question)
            return left.pop(0)

        return human

    def test_a_callback_answers(self) -> None:
        human = self.asked("??", "no")
        models = good(generator=cast.writes(RISKY, RIGHT))
        solution = solved(models=models, human=human)
        assert [q["asked_again"] for q in self.questions] == [False, True]
        assert solution.files["solution.py"] == RIGHT["solution.py"]
        assert solution.passed


def test_a_refused_key_is_a_clear_end() -> None:
    class RefusedError(Exception):
        status_code = 401

    broken = cast.in_turn(RefusedError("the key is wrong"))
    solution = solved(models=good(executor=broken))
    assert solution.outcome == "stopped"
    assert solution.error == "RefusedError: the key is wrong"
    assert solution.files["solution.py"] == RIGHT["solution.py"]


def test_models_that_never_answer_are_not_called_failing_tests() -> None:
    seen: list[Any] = []
    down = dict.fromkeys(
        ("supervisor", "generator", "reviewer", "executor"),
        cast.in_turn(*[ConnectionError("no server listens")] * 60),
    )
    solution = solved(models=down, listener=seen.append)
    assert solution.outcome == "stopped"
    assert solution.error == "No model answered. ConnectionError: no server listens"
    told = [event.text for event in seen if event.kind == "said"]
    assert "no answer: ConnectionError: no server listens" in told


class TestNoServer:
    @pytest.fixture
    def address(self) -> str:
        """Return the address of a port on which nothing listens."""
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            return f"http://127.0.0.1:{held.getsockname()[1]}/v1#m"

    @pytest.mark.slow
    def test_it_is_told_at_once(self, address: str) -> None:
        """The client tries again for a second or two, and no role tries after it."""
        seen: list[Any] = []
        began = time.monotonic()
        solution = solved(models=None, model=address, listener=seen.append)
        assert time.monotonic() - began < 10  # 24 s when each role tried
        assert solution.outcome == "stopped"
        root = address.removesuffix("v1#m")
        assert solution.error == (
            f"No model answered: no server listens at {root}. Start it, or name "
            "another model."
        )
        assert [e.role for e in seen if e.kind == "asked"] == ["supervisor"]

    @pytest.mark.slow
    def test_a_fallback_answers_for_it(self, address: str) -> None:
        models = {**good(), "generator": address}
        solution = solved(models=models, fallback=cast.writes(RIGHT))
        assert solution.passed
        assert solution.usage["generator"].calls == 3  # one of them not answered

    def test_a_server_that_starts_is_asked_again(self) -> None:
        class StartingError(Exception):
            status_code = 503

        writer = cast.writes(RIGHT)
        heard: list[Any] = []

        def play(messages: Any) -> Any:
            heard.append(messages)
            if len(heard) == 1:
                raise StartingError("loading")
            return writer.play(messages)

        assert solved(models=good(generator=cast.actor(play))).passed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"problem": " \n"}, "The problem is empty"),
        ({"problem": "x" * 20_001}, "at most 20,000 are read"),
        ({"language": "cobol"}, "No language is named 'cobol'; known: python"),
        ({"max_rounds": 0}, "give 1 or more"),
        ({"files": {"../a.py": ""}}, "cannot be named '../a.py'"),
        ({"models": {}}, "No model for supervisor, generator"),
        ({"models": {"writer": "nano"}}, "No role is named 'writer'"),
        ({"models": {}, "model": "openai:gpt"}, "OPENAI_API_KEY"),
        ({"model": "http://[::1]:9/v1,http://[::1]:8/v1#m", "models": {}}, "several"),
        ({"models": {}, "model": "nano", "agent": "x"}, "not both"),
        ({"models": {}, "agent": "nobody"}, "nobody"),
    ],
)
def test_bad_input(
    options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises((UsageError, NotFoundError, SandboxError), match=message):
        solved(**options)


def test_models_by_text(monkeypatch: pytest.MonkeyPatch) -> None:
    from langchain_openai import ChatOpenAI

    from agentgym.plugins.team.solving.solve import chat_models

    monkeypatch.setenv("OPENAI_API_KEY", "key")
    found, notes = chat_models(
        "http://127.0.0.1:9/v1#small", {"generator": "openai:large"}
    )
    assert notes == []
    generator, reviewer = found["generator"], found["reviewer"]
    assert isinstance(generator, ChatOpenAI)
    assert isinstance(reviewer, ChatOpenAI)
    assert generator.model_name == "large"
    assert generator.openai_api_base == "https://api.openai.com/v1"
    assert reviewer.openai_api_base == "http://127.0.0.1:9/v1"
    assert reviewer is found["supervisor"]


def test_the_shipped_policy_says_that_it_cannot_write() -> None:
    from agentgym.plugins.team.solving.solve import chat_models

    models = good()
    del models["reviewer"]
    found, notes = chat_models("nano", models)
    assert "cannot write code" in notes[0]
    assert type(found["reviewer"]).__name__ == "RoleChatOpenAI"
