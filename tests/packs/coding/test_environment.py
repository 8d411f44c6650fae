"""The tools: what they show, what they refuse."""

import asyncio
from typing import Any

import pytest

from agentgym.errors import RuleViolation, SandboxError, ToolError
from agentgym.packs.coding.environment import CodingEnvironment
from agentgym.sandbox import Sandbox, SandboxResult

FILES = {
    "shop/pricing.py": "RATE = 5\n\n\ndef scale(a):\n    return a * RATE\n",
    "tests/test_pricing.py": (
        "from shop.pricing import scale\n\n\n"
        "def test_scale():\n    assert scale(2) == 10\n"
    ),
    "report_shop.py": (
        'import sys\n\nvalues = sys.argv[1:]\nprint("shop:", len(values), *values)\n'
    ),
}


@pytest.fixture
def project(sandbox: Sandbox) -> CodingEnvironment:
    return CodingEnvironment(FILES, sandbox)


def test_list_files(project: CodingEnvironment) -> None:
    assert project.list_files() == "\n".join(sorted(FILES))
    assert project.list_files("tests/") == "tests/test_pricing.py"
    with pytest.raises(ToolError, match="no folder lib"):
        project.list_files("lib")


def test_read_file(project: CodingEnvironment) -> None:
    assert project.read_file("./shop/pricing.py") == FILES["shop/pricing.py"].rstrip()
    with pytest.raises(ToolError, match=r"no file shop/prices\.py"):
        project.read_file("shop/prices.py")
    with pytest.raises(ToolError, match="shop is a folder"):
        project.read_file("shop")


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "shop/../../x", "..", "a\0b"])
def test_no_path_leads_out(project: CodingEnvironment, path: str) -> None:
    for tool in (project.list_files, project.read_file, project.lint):
        with pytest.raises(ToolError, match="outside the project"):
            tool(path)


def test_search_shows_sources_before_tests(project: CodingEnvironment) -> None:
    assert project.search_code("scale").splitlines() == [
        "shop/pricing.py:4: def scale(a):",
        "tests/test_pricing.py:1: from shop.pricing import scale",
        "tests/test_pricing.py:4: def test_scale():",
        "tests/test_pricing.py:5: assert scale(2) == 10",
    ]
    for query in ("absent", "", "  "):
        with pytest.raises(ToolError, match="not found"):
            project.search_code(query)


def test_edit_replaces_one_occurrence(project: CodingEnvironment) -> None:
    project.read_file("shop/pricing.py")
    assert project.edit_file("shop/pricing.py", "RATE = 5", "RATE = 7") == (
        "Edited shop/pricing.py."
    )
    assert project.workspace.files["shop/pricing.py"].startswith("RATE = 7\n")
    with pytest.raises(ToolError, match="not in shop/pricing.py; copy a line"):
        project.edit_file("shop/pricing.py", "RATE = 5", "RATE = 8")
    with pytest.raises(ToolError, match="2 times in shop/pricing.py; copy more"):
        project.edit_file("shop/pricing.py", "RATE", "SPEED")
    with pytest.raises(ToolError, match="not in shop/pricing.py"):
        project.edit_file("shop/pricing.py", "", "SPEED")
    with pytest.raises(ToolError, match="at most 8000 characters"):
        project.edit_file("shop/pricing.py", "RATE = 7", "x" * 9_000)


def test_tests_are_never_changed(project: CodingEnvironment) -> None:
    path = "tests/test_pricing.py"
    project.read_file(path)
    with pytest.raises(RuleViolation, match="under tests/"):
        project.edit_file(path, "== 10", "== 11")
    with pytest.raises(RuleViolation, match="under tests/"):
        project.edit_file("shop/../tests/test_pricing.py", "== 10", "== 11")
    with pytest.raises(RuleViolation, match="under tests/"):
        project.format_file(path)
    assert project.workspace.files == FILES


async def test_run_tests_reports_briefly(project: CodingEnvironment) -> None:
    assert await project.run_tests() == "1 passed."
    project.read_file("shop/pricing.py")
    project.edit_file("shop/pricing.py", "RATE = 5", "RATE = 7")
    assert await project.run_tests("tests/") == (
        "1 failed, 0 passed.\n"
        "tests/test_pricing.py::test_scale (shop/pricing.py): "
        "assert scale(2) == 10 (left: 14, right: 10)"
    )
    with pytest.raises(ToolError, match="not under tests/"):
        await project.run_tests("shop/pricing.py")
    with pytest.raises(ToolError, match="no file tests/test_x.py"):
        await project.run_tests("tests/test_x.py")


async def test_run_script(project: CodingEnvironment) -> None:
    project.read_file("report_shop.py")
    assert await project.run_script("report_shop.py") == "shop: 0"
    assert await project.run_script("report_shop.py", " 4  'a b'") == "shop: 2 4 a b"
    with pytest.raises(ToolError, match="do not parse"):
        await project.run_script("report_shop.py", "'open")


def test_lint_and_format() -> None:
    files = {"a.py": "import os\nRATE=5\n", "b.py": "RATE = 5\n", "c.py": "def :\n"}
    project = CodingEnvironment(files, Sandbox())
    assert project.lint("a.py") == (
        "a.py:1: 'os' imported but unused\n"
        "a.py:2: E225 missing whitespace around operator"
    )
    assert project.lint("b.py") == "No problems."
    assert project.lint("c.py") == "c.py:1: syntax error"
    assert project.format_file("a.py") == "Formatted a.py."
    assert project.workspace.files["a.py"] == "import os\nRATE = 5\n"
    assert project.format_file("b.py") == "b.py is unchanged."
    with pytest.raises(ToolError, match="does not parse"):
        project.format_file("c.py")


async def test_a_script_that_fails_shows_its_last_line() -> None:
    class Ended(Sandbox):
        def __init__(self, **fields: Any) -> None:
            self.result = SandboxResult(rung="none", warm=True, **fields)

        async def run(self, *_: object, **__: object) -> SandboxResult:
            return self.result

    async def show(**fields: Any) -> str:
        project = CodingEnvironment(FILES, Ended(**fields))
        project.read_file("report_shop.py")
        return await project.run_script("report_shop.py")

    trace = "Traceback\nValueError: no"
    failed = await show(status="exited", exit_code=1, stderr=trace)
    assert failed == "The script failed: ValueError: no"
    stopped = await show(status="timed_out")
    assert stopped == "The script was stopped: timed_out."
    silent = await show(status="exited", exit_code=0)
    assert silent == "The script printed nothing."
    long = await show(status="exited", exit_code=0, stdout="x" * 500)
    assert long == "x" * 120 + "..."
    with pytest.raises(SandboxError, match="no zygote"):
        await show(status="sandbox_error", error="no zygote")


async def test_tests_run_on_the_files_as_they_were_when_asked(sandbox: Sandbox) -> None:
    class Slow(Sandbox):
        async def run(self, *asked: Any, **options: Any) -> SandboxResult:
            await asyncio.sleep(0)
            return sandbox.run_sync(*asked, **options)

    project = CodingEnvironment(FILES, Slow())
    project.read_file("shop/pricing.py")
    running = asyncio.ensure_future(project.run_tests())
    await asyncio.sleep(0)
    project.edit_file("shop/pricing.py", "RATE = 5", "RATE = 7")
    assert await running == "1 passed."
    assert project.untested == {"shop/pricing.py"}
    assert (await project.run_tests()).startswith("1 failed")
    assert not project.untested
