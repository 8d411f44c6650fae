"""The graph with scripted roles: its own state says how it went."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.plugins.team.coding_team import cast
from tests.plugins.team.coding_team.conftest import Team

MakeTeam = Callable[..., Team]
ASKED = "Write a function that reverses a string"
TESTS = {
    "tests/test_solution.py": (
        "from solution import flip\n\n\n"
        "def test_flip():\n    assert flip('ab') == 'ba'\n"
    )
}
RIGHT = {"solution.py": "def flip(text):\n    return text[::-1]\n"}
WRONG = {"solution.py": "def flip(text):\n    return text\n"}
LONG = {
    "solution.py": RIGHT["solution.py"]
    + "".join(f"\n\ndef f{n}(a):\n    return a + {n}\n" for n in range(8))
}
MISSPELLED = {"solution.py": LONG["solution.py"].replace("text[::-1]", "txt[::-1]")}
RISKY = {"solution.py": "import subprocess\n\n" + RIGHT["solution.py"]}


def good(**others: Any) -> dict[str, Any]:
    """Return a cast that plays well, apart from the roles that are given."""
    roles = {
        "supervisor": cast.lead(),
        "generator": cast.writes(RIGHT),
        "reviewer": cast.checks_all(),
        "executor": cast.tests_all(),
    }
    return roles | others


def path(state: Mapping[str, Any]) -> list[str]:
    """Return who had the turns, the supervisor left out."""
    return [t["role"] for t in state["history"] if t["role"] != "supervisor"]


async def test_a_simple_problem_skips_the_review(team: MakeTeam) -> None:
    state = await team(TESTS, good()).ask(ASKED)
    assert path(state) == ["generator", "executor"]
    assert state["outcome"] == "passed"
    assert state["files"]["solution.py"] == RIGHT["solution.py"]
    assert state["tests"] == {"passed": 1, "failed": 0, "failures": []}
    assert state["problem"] == ASKED
    assert "1 tests passed" in state["messages"][-1].text


async def test_failures_go_back_with_the_executors_findings(team: MakeTeam) -> None:
    generator = cast.writes(WRONG, RIGHT)
    state = await team(TESTS, good(generator=generator)).ask(ASKED)
    assert path(state) == ["generator", "executor"] * 2
    assert state["outcome"] == "passed"
    briefs = [text for text in generator.heard if text.startswith("Request")]
    assert "Failed test" not in briefs[0]
    assert "Failed test: tests/test_solution.py::test_flip" in briefs[1]
    assert "The run says: 1 failed" in briefs[1]
    assert [t["round"] for t in state["history"] if t["role"] == "executor"] == [1, 2]


async def test_a_serious_finding_goes_back_before_any_test(team: MakeTeam) -> None:
    generator = cast.writes(MISSPELLED, LONG)
    state = await team(TESTS, good(generator=generator)).ask(ASKED)
    assert path(state) == [
        *("generator", "reviewer", "generator", "reviewer", "executor")
    ]
    assert "F821" in next(text for text in generator.heard if "Finding" in text)
    assert state["findings"] == []


async def test_it_ends_after_the_last_round(team: MakeTeam) -> None:
    wrong = [{"solution.py": WRONG["solution.py"] + f"# {n}\n"} for n in range(9)]
    cast_ = good(generator=cast.writes(*wrong))
    state = await team(TESTS, cast_, max_rounds=2).ask(ASKED)
    assert path(state) == ["generator", "executor"] * 2
    assert state["outcome"] == "failed"
    assert state["tests"]["failed"] == 1
    assert "solution.py" in state["files"]


async def test_the_executor_writes_tests_where_there_are_none(team: MakeTeam) -> None:
    path_, text = next(iter(TESTS.items()))
    executor = cast.in_turn(
        cast.call("write_test", path=path_, text=text),
        cast.call("run_tests", path=path_),
        "All passed.",
    )
    state = await team({}, good(executor=executor)).ask(ASKED)
    assert state["outcome"] == "passed"
    assert state["files"].keys() == {"solution.py", path_}


async def test_a_sloppy_generator_is_asked_again(team: MakeTeam) -> None:
    generator = cast.in_turn(
        "Sure, I will.",
        cast.call("write_file", path="solution.py", text=RIGHT["solution.py"]),
        "Written.",
    )
    state = await team(TESTS, good(generator=generator)).ask(ASKED)
    assert state["outcome"] == "passed"
    assert path(state) == ["generator", "executor"]
    assert "no file was written. Use your tools." in generator.heard[1]


async def test_code_that_was_only_shown_is_kept(team: MakeTeam) -> None:
    shown = f"Take this:\n```python\n{RIGHT['solution.py']}```"
    state = await team(TESTS, good(generator=cast.in_turn(shown))).ask(ASKED)
    assert state["files"]["solution.py"] == RIGHT["solution.py"]
    assert state["outcome"] == "passed"


@pytest.mark.parametrize(
    ("role", "kind"), [("reviewer", cast.silent), ("executor", cast.broken)]
)
async def test_a_role_that_fails_is_stood_in_for(
    team: MakeTeam, role: str, kind: Callable[[], cast.Actor]
) -> None:
    made = team(TESTS, good(**{role: kind(), "generator": cast.writes(LONG)}))
    state = await made.ask(ASKED)
    assert path(state) == ["generator", "reviewer", "executor"]
    [turn] = [t for t in state["history"] if t["role"] == role]
    assert turn["did"].startswith("could not be used: ")
    assert state["outcome"] == "passed"
    assert made.project.fallbacks == [role]


@pytest.mark.parametrize("kind", [cast.silent, cast.endless])
async def test_a_generator_that_fails_ends_with_what_there_is(
    team: MakeTeam, kind: Callable[[], cast.Actor]
) -> None:
    state = await team(TESTS, good(generator=kind()), max_rounds=2).ask(ASKED)
    assert path(state) == ["generator", "generator"]
    assert state["outcome"] == "failed"
    assert state["files"] == TESTS


@pytest.mark.parametrize("role", ["generator", "supervisor"])
async def test_the_fallback_model_answers_for_a_broken_one(
    team: MakeTeam, role: str
) -> None:
    whole = good(generator=cast.writes(LONG))
    fallback, whole[role] = whole[role], cast.broken()
    made = team(TESTS, whole, fallback=fallback)
    state = await made.ask(ASKED)
    assert state["outcome"] == "passed"
    assert path(state) == ["generator", "reviewer", "executor"]
    assert made.project.fallbacks == []


@pytest.mark.parametrize("kind", [cast.silent, cast.broken])
async def test_the_rules_route_where_the_supervisor_does_not(
    team: MakeTeam, kind: Callable[[], cast.Actor]
) -> None:
    made = team(TESTS, good(supervisor=kind(), generator=cast.writes(WRONG, RIGHT)))
    state = await made.ask(ASKED)
    assert path(state) == ["generator", "executor"] * 2
    assert state["outcome"] == "passed"
    assert all(
        turn["did"].endswith("by rule")
        for turn in state["history"]
        if turn["role"] == "supervisor"
    )


@pytest.mark.slow
@pytest.mark.parametrize("role", ["supervisor", "executor"])
async def test_a_model_that_hangs_comes_to_an_end(
    team: MakeTeam, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentgym.plugins.team.coding_team import graph

    monkeypatch.setattr(graph, "TURN_S", 0.3)
    made = team(TESTS, good(**{role: cast.hanging()}))
    async with asyncio.timeout(60):
        state = await made.ask(ASKED)
    assert state["outcome"] == "passed"
    assert role in made.project.fallbacks


async def test_a_wrong_choice_is_refused_and_may_be_mended(team: MakeTeam) -> None:
    supervisor = cast.in_turn(
        cast.call("hand_over", to="finish"),
        cast.call("hand_over", to="generator"),
        cast.call("hand_over", to="executor"),
        cast.call("hand_over", to="finish"),
    )
    made = team(TESTS, good(supervisor=supervisor))
    state = await made.ask(ASKED)
    assert path(state) == ["generator", "executor"]
    assert supervisor.heard[1] == "Error: not finish now: generator is next."
    assert made.project.fallbacks == []
    assert len(made.project.books.violations) == 1


async def test_the_generator_may_not_touch_tests(team: MakeTeam) -> None:
    cheat = {"tests/test_solution.py": "def test_flip():\n    pass\n"}
    state = await team(TESTS, good(generator=cast.writes(cheat, RIGHT))).ask(ASKED)
    assert state["files"]["tests/test_solution.py"] == TESTS["tests/test_solution.py"]
    assert state["outcome"] == "passed"


async def test_the_supervisors_note_reaches_the_role(team: MakeTeam) -> None:
    supervisor = cast.in_turn(
        cast.call("hand_over", to="generator", note="use a slice"),
        cast.call("hand_over", to="executor"),
        cast.call("hand_over", to="finish"),
    )
    generator = cast.writes(RIGHT)
    await team(TESTS, good(supervisor=supervisor, generator=generator)).ask(ASKED)
    assert "Note: use a slice" in generator.heard[0]


async def test_a_next_request_goes_on_with_the_files(team: MakeTeam) -> None:
    faster = {"solution.py": RIGHT["solution.py"] + "\n\nFAST = True\n"}
    generator = cast.writes(RIGHT, faster)
    made = team(TESTS, good(generator=generator))
    await made.ask(ASKED)
    made.project.begin()
    state = await made.ask("Now make it faster")
    assert state["problem"] == "Now make it faster"
    last = [text for text in generator.heard if "Request: Now" in text][-1]
    assert last.startswith(f"Earlier request: {ASKED}\n")
    assert state["files"]["solution.py"] == faster["solution.py"]
    assert state["outcome"] == "passed"
    assert [m.type for m in state["messages"]] == ["human", "ai"] * 2


def test_a_role_without_a_model_is_named(team: MakeTeam) -> None:
    with pytest.raises(ValueError, match="'supervisor' has no model"):
        team(TESTS, {"generator": cast.silent()})


class TestPerson:
    async def test_a_risky_edit_waits(self, team: MakeTeam) -> None:
        made = team(TESTS, good(generator=cast.writes(RISKY)), human=True)
        state = await made.ask(ASKED)
        [question] = state["__interrupt__"]
        assert question.value["kind"] == "risky_edit"
        assert question.value["files"] == RISKY
        assert path(state) == ["generator"]
        state = await made.answer("yes")
        assert path(state)[:2] == ["generator", "person"]
        assert state["files"]["solution.py"] == RISKY["solution.py"]
        assert state["outcome"] == "passed"

    @pytest.mark.parametrize("answer", ["no", "use no other program"])
    async def test_a_rejected_edit_is_taken_back(
        self, team: MakeTeam, answer: str
    ) -> None:
        generator = cast.writes(RISKY, RIGHT)
        made = team(TESTS, good(generator=generator), human=True)
        await made.ask(ASKED)
        state = await made.answer(answer)
        assert path(state) == ["generator", "person", "generator", "executor"]
        assert state["files"]["solution.py"] == RIGHT["solution.py"]
        brief = next(text for text in generator.heard if "Note: " in text)
        assert (answer if answer != "no" else "rejected the last change") in brief

    async def test_nothing_happens_before_the_question(self, team: MakeTeam) -> None:
        generator = cast.writes(RISKY)
        made = team(TESTS, good(generator=generator), human=True)
        before = await made.ask(ASKED)
        heard, turns = len(generator.heard), path(before)
        for nonsense in ("?", 7):  # the node runs again from its start each time
            state = await made.answer(nonsense)
            assert state["__interrupt__"][0].value["asked_again"]
            assert (len(generator.heard), path(state)) == (heard, turns)
            assert made.project.rounds == 1

    async def test_nonsense_three_times_counts_as_no(self, team: MakeTeam) -> None:
        made = team(TESTS, good(generator=cast.writes(RISKY, RIGHT)), human=True)
        await made.ask(ASKED)
        for nonsense in ("?", "", {"answer": 3}):
            state = await made.answer(nonsense)
        assert path(state)[1:3] == ["person", "generator"]
        assert state["files"]["solution.py"] == RIGHT["solution.py"]

    async def test_the_same_wrong_code_again_is_a_deadlock(
        self, team: MakeTeam
    ) -> None:
        others = {"solution.py": "def flip(text):\n    return 1\n"}
        versions = (WRONG, others, WRONG, RIGHT)
        cast_ = good(generator=cast.writes(*versions))
        made = team(TESTS, cast_, human=True, max_rounds=5)
        state = await made.ask(ASKED)
        assert state["__interrupt__"][0].value["kind"] == "deadlock"
        assert path(state) == ["generator", "executor"] * 2 + ["generator"]
        state = await made.answer("look at the slice")
        assert state["outcome"] == "passed"

    async def test_more_rounds_after_the_last_one(self, team: MakeTeam) -> None:
        versions = (WRONG, RIGHT)
        cast_ = good(generator=cast.writes(*versions))
        made = team(TESTS, cast_, human=True, max_rounds=1)
        state = await made.ask(ASKED)
        assert state["__interrupt__"][0].value["kind"] == "failed_rounds"
        state = await made.answer(True)
        assert path(state) == [
            *("generator", "executor", "person", "generator", "executor")
        ]
        assert state["outcome"] == "passed"

    async def test_a_person_who_leaves_ends_it(self, team: MakeTeam) -> None:
        made = team(TESTS, good(generator=cast.writes(WRONG)), human=True, max_rounds=1)
        await made.ask(ASKED)
        state = await made.answer({"answer": None})
        assert state["outcome"] == "failed"
        assert state["files"]["solution.py"] == WRONG["solution.py"]
        assert state["messages"][-1].text.startswith("Failed")


def test_the_graph_imports_nothing_of_agentgym_but_itself() -> None:
    import ast
    from pathlib import Path

    from agentgym.plugins.team.coding_team import graph, routing

    ours = [
        node.module
        for module in (graph, routing)
        for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text()))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("agentgym")
    ]
    assert ours == [routing.__name__]
