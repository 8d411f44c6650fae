"""Tools: bounded, confined, and one's own beside them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from agentgym.core.tools import Tool
from agentgym.errors import NotFoundError, ScenarioError, ToolError, UsageError
from agentgym.plugins.collect.toolbox import Toolbox, calculate
from agentgym.rollout import tool
from agentgym.sandbox.workspace import Workspace

FILES = {"src/app.py": "def add(a, b):\n    return a + b\n", "README": "Adds.\n"}


Maker = Callable[..., tuple[Tool, Workspace]]


@pytest.fixture
def made() -> Iterator[Maker]:
    """Yield a function that returns a tool and its workspace."""
    with ExitStack() as stack:

        def make(*named: str, **settings: Any) -> tuple[Tool, Workspace]:
            box = Toolbox({**{name: {} for name in named}, **settings})
            stack.callback(box.close)
            box.open()
            bench = box.bench(FILES)
            return bench.tools()[0], bench.workspace

        yield make


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2 + 3 * 4", 14),
        ("-(2 ** 3) // 3", -3),
        ("sqrt(16) + max(1, 2, 3)", 7.0),
        ("round(pi, 2)", 3.14),
        ("1 ** 999999999", 1),
    ],
)
def test_calculator_calculates(expression: str, value: float) -> None:
    assert calculate(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('true')",
        "().__class__",
        "'a' * 9",
        "True + 1",
        "9 ** 9 ** 9",
        "(2 ** 4000) * (2 ** 4000)",
        "(-8) ** 0.5",
        "1 / 0",
        "1e999",
        "round(1, -999999999)",
        "sqrt(-1)",
        "(" * 250 + "1" + ")" * 250,
        "",
        "9" * 5000,
    ],
    ids=lambda text: text[:20],
)
def test_calculator_refuses_what_is_no_bounded_arithmetic(expression: str) -> None:
    with pytest.raises(ToolError):
        calculate(expression)


async def test_calculator_settings_bound_the_expression(made: Maker) -> None:
    calculator, _ = made(calculator={"max_characters": 5})
    assert await calculator(expression="1 + 1") == "2"
    with pytest.raises(ToolError, match="at most 5 characters"):
        await calculator(expression="1 + 11")


async def test_bash_sees_the_files_and_keeps_what_it_changes(made: Maker) -> None:
    bash, workspace = made("bash")
    shown = await bash(command="cat README; echo new > b.txt; rm README")
    assert shown == "Adds."
    assert await bash(command="ls; cat b.txt") == "b.txt\nsrc\nnew"
    assert workspace.changed() == {"README": None, "b.txt": "new\n"}


@pytest.mark.slow
async def test_bash_tells_of_failure_and_is_limited(made: Maker) -> None:
    hasty, _ = made(bash={"timeout_s": 0.2})
    assert "ended after 0.2 s" in await hasty(command="sleep 30")
    bash, _ = made(bash={"max_output": 200})
    assert await bash(command="echo no >&2; exit 3") == "no\n(exit code 3)"
    assert await bash(command="true") == "(no output)"
    long = await bash(command="yes | head -c 5000")
    assert len(long) < 260
    assert "characters left out" in long


async def test_bash_cannot_reach_the_machine(made: Maker) -> None:
    bash, workspace = made("bash")
    said = await bash(command="cat /etc/shadow; touch /x; ln -s /etc/passwd link")
    assert "root:" not in said
    assert workspace.changed() == {}


async def test_editor_views_creates_replaces_and_inserts(made: Maker) -> None:
    edit, workspace = made("file_editor")
    assert await edit(command="view", path=".") == "README\nsrc/app.py"
    assert "    2      return a + b" in await edit(command="view", path="src/app.py")
    one = await edit(command="view", path="src/app.py", first_line=2, last_line=2)
    assert one.startswith("    2")
    await edit(command="create", path="src/new.py", file_text="a\nb")
    await edit(command="insert", path="src/new.py", insert_line=2, new_str="c")
    await edit(command="insert", path="src/new.py", insert_line=0, new_str="top")
    assert workspace.files["src/new.py"] == "top\na\nb\nc\n"
    await edit(command="str_replace", path="README", old_str="Adds", new_str="Sums")
    assert workspace.changed() == {"README": "Sums.\n", "src/new.py": "top\na\nb\nc\n"}


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": "view", "path": "/etc/passwd"},
        {"command": "view", "path": "../x"},
        {"command": "view", "path": "README", "first_line": 9},
        {"command": "create", "path": "src/../../x", "file_text": ""},
        {"command": "create", "path": "x", "file_text": "x" * 300_000},
        {"command": "create", "path": "a\0b", "file_text": ""},
        {"command": "str_replace", "path": "README", "old_str": "", "new_str": "x"},
        {"command": "str_replace", "path": "src/app.py", "old_str": "a"},
        {"command": "insert", "path": "README", "insert_line": 7, "new_str": "x"},
    ],
    ids=str,
)
async def test_editor_refuses_what_it_cannot_do(
    made: Maker, arguments: dict[str, Any]
) -> None:
    edit, workspace = made("file_editor")
    with pytest.raises(ToolError):
        await edit(**arguments)
    assert workspace.changed() == {}


async def test_search_finds_lines_in_files_and_in_given_texts(made: Maker) -> None:
    texts = {"facts": "Water boils at 100 C.\nSalt ADDS to that."}
    search, _ = made(search={"texts": texts, "max_matches": 1})
    assert await search(query="return") == "src/app.py:2: return a + b"
    assert await search(query="adds") == "facts:2: Salt ADDS to that.\n(1 more)"
    assert await search(query="adds", path="README") == "README:1: Adds."
    assert await search(query="nothing") == "No line holds 'nothing'."
    with pytest.raises(ToolError, match="outside"):
        await search(query="x", path="../..")
    with pytest.raises(ToolError, match="empty"):
        await search(query=" ")


@tool
def weather(city: str) -> dict[str, Any]:
    """Look the weather up."""
    if city == "Nowhere":
        raise KeyError(city)
    return {"city": city, "thread": threading.current_thread().name}


async def test_own_tools_run_beside_the_loop_and_return_text() -> None:
    async def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    sync, other = Toolbox({}, [weather, double]).bench({}).tools()
    assert '"thread": "agentgym-tool"' in await sync(city="Bonn")
    assert await other(number="4") == "8"
    with pytest.raises(ToolError, match="KeyError: 'Nowhere'"):
        await sync(city="Nowhere")


def test_tools_without_types_or_with_one_name_twice_are_refused() -> None:
    def untyped(x):  # type: ignore[no-untyped-def]
        """Do something."""

    with pytest.raises(ScenarioError, match="write for instance x: str"):
        Toolbox({}, [untyped])
    with pytest.raises(UsageError, match="Two tools are named 'weather'"):
        Toolbox({}, [weather, weather])


def test_ready_made_tools_are_listed() -> None:
    with pytest.raises(NotFoundError, match="bash, calculator, file_editor, search"):
        Toolbox({"calc": {}})
