"""The tools: what they answer, what they refuse, and the facts that they leave."""

import asyncio
import json

import pytest

from agentgym.core.tools import ToolOutcome, run_tool
from agentgym.errors import RuleViolation, ToolError
from agentgym.plugins.team.coding_team.environment import TeamEnvironment
from agentgym.sandbox import Sandbox

TESTS = {
    "tests/test_a.py": (
        "from solution import one\n\n\ndef test_one():\n    assert one() == 1\n"
    ),
    "tests/test_b.py": (
        "from solution import one\n\n\ndef test_again():\n    assert one() > 0\n"
    ),
}
ONE = "def one():\n    return 1\n"


@pytest.fixture
def project(sandbox: Sandbox) -> TeamEnvironment:
    return TeamEnvironment(TESTS, sandbox)


async def test_tests_count_when_all_have_run(project: TeamEnvironment) -> None:
    project.write_file("solution.py", ONE)
    assert await project.run_tests("tests/test_a.py") == "1 passed."
    assert project.facts()["tests"] is None
    assert await project.run_tests("tests/test_b.py") == "1 passed."
    assert project.facts()["tests"] == {"passed": 2, "failed": 0, "failures": []}
    project.edit_file("solution.py", "1", "2")
    assert project.facts()["tests"] is None
    report = await project.run_tests()
    assert report.startswith("1 failed, 1 passed.\ntests/test_a.py::test_one")


async def test_a_test_file_without_a_test_proves_nothing(sandbox: Sandbox) -> None:
    project = TeamEnvironment({}, sandbox)
    project.write_file("solution.py", ONE)
    assert await project.run_tests() == "There are no tests. Write some."
    assert project.facts()["tests"] == {"passed": 0, "failed": 0, "failures": []}
    project.write_test("tests/test_a.py", "import solution\n")
    await project.run_tests()
    assert project.facts()["tests"]["failed"] == 1


async def test_checks_find_what_is_wrong(project: TeamEnvironment) -> None:
    project.write_file("solution.py", "def one():\n    return oen\n")
    assert "F821" in await project.lint("solution.py")
    assert not project.facts()["reviewed"]
    assert project.check_security("solution.py") == "No problems."
    facts = project.facts()
    assert facts["reviewed"]
    assert facts["serious"] == 1
    project.write_file("solution.py", "import hashlib\n\nH = hashlib.md5(b'')\n")
    assert project.facts()["serious"] == 0
    assert "B324" in project.check_security("solution.py")
    assert project.facts()["serious"] == 1
    branches = "".join(f"    if a == {n}:\n        return {n}\n" for n in range(12))
    project.write_file("solution.py", f"def one(a):\n{branches}")
    assert "cyclomatic complexity" in project.check_complexity("solution.py")


def test_a_reported_finding_counts(project: TeamEnvironment) -> None:
    project.write_file("solution.py", ONE)
    project.report_finding("solution.py", 2, "high", "It returns always one.")
    assert project.facts()["serious"] == 1
    with pytest.raises(ToolError, match="no file other"):
        project.report_finding("other.py", 2, "high", "?")


def test_who_may_write_what(project: TeamEnvironment) -> None:
    with pytest.raises(RuleViolation, match="tests are not the generator's"):
        project.write_file("tests/test_a.py", "")
    with pytest.raises(RuleViolation, match="was given"):
        project.write_test("tests/test_a.py", "")
    with pytest.raises(ToolError, match="not named as tests are"):
        project.write_test("solution.py", ONE)
    with pytest.raises(ToolError, match="outside the project"):
        project.write_file("../x.py", "")
    for path in (".git/config", "lib/.GIT/hooks/pre-commit"):
        with pytest.raises(ToolError, match="git's own"):
            project.write_file(path, "[core]\n\tfsmonitor = touch /tmp/x\n")


async def test_measuring(project: TeamEnvironment) -> None:
    project.write_file("solution.py", ONE)
    assert "KiB at most." in await project.measure("solution.py", "one()")
    assert "NameError" in await project.measure("solution.py", "two()")
    with pytest.raises(ToolError, match="not an expression"):
        await project.measure("solution.py", "import os")


def test_handing_over(project: TeamEnvironment) -> None:
    with pytest.raises(RuleViolation, match="not finish now: generator is next"):
        project.hand_over("finish")
    assert project.hand_over("generator") == "generator is next."
    assert project.rounds == 1
    project.write_file("solution.py", ONE)
    state = json.loads(project.team_state("take_back"))
    assert state["files"] == TESTS
    assert json.loads(project.team_state("more_rounds"))["facts"]["max_rounds"] == 4
    with pytest.raises(ToolError, match="no event"):
        project.team_state("dance")


def test_calls_that_stand_in_are_not_the_models(project: TeamEnvironment) -> None:
    project.write_file("solution.py", ONE)
    project.team_state("fall_back", "executor")
    asyncio.run(project.run_tests())
    assert [call.tool for call in project.books.calls] == ["write_file"]
    project.hand_over("finish")
    assert project.books.calls[-1].tool == "hand_over"
    assert project.fallbacks == ["executor"]


async def test_a_script_writes_its_drafts(sandbox: Sandbox) -> None:
    drafts = [{"solution.py": "def one():\n    return 2\n"}, {"solution.py": ONE}]
    project = TeamEnvironment(TESTS, sandbox, drafts=drafts)
    tools = {tool.spec.name: tool for tool in project.tools()}
    assert "write_file" not in tools
    project.hand_over("generator")
    await project.run_tests()
    assert project.facts()["tests"]["failed"] == 1
    project.hand_over("generator")
    await project.run_tests()
    outcome, _ = await run_tool(tools, "hand_over", {"to": "finish"})
    assert outcome is ToolOutcome.OK
    assert project.changed_files() == {"solution.py": ONE}
