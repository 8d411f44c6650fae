"""The key ``rewards`` of a tasks file: code that a call writes."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.task import Split
from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import Reward, ToolCall, Trajectory
from agentgym.errors import UsageError
from agentgym.evaluate.check import Examination, run_tripwire
from agentgym.scenarios.base import Scenario

TOOLS = '''
def write_file(path: str, text: str) -> str:
    """Write a file."""
    raise AssertionError("it is not called in training")


def think(about: str) -> str:
    """Think."""
    return "Hm."


TOOLS = [write_file, think]
'''
PAIRS = {
    "add": "a + b",
    "sub": "a - b",
    "mul": "a * b",
    "low": "min(a, b)",
    "high": "max(a, b)",
    "same": "a == b",
    "first": "a + 0 * b",
    "join": "[a, b]",
    "near": "abs(a - b)",
    "far": "a * a + b",
    "cut": "a // b",
    "most": "a + 2 * b",
}


def line(name: str, body: str, **changes: Any) -> dict[str, Any]:
    path = f"{name}.py"
    expression = f"{name}(7, 2)"
    rewards = {
        "code": {"tool": "write_file", "path": "path", "text": "text"},
        "hidden": {
            path: {expression: eval(body, {"a": 7, "b": 2}), f"{name}(9, 4)": 0}
        },
        "reference": {path: f"def {name}(a, b):\n    return {body}\n"},
    }
    rewards["hidden"][path][f"{name}(9, 4)"] = eval(body, {"a": 9, "b": 4})
    rewards |= changes
    rewards = {key: value for key, value in rewards.items() if value is not None}
    return {"instruction": f"Write {name} of a and b to {path}.", "rewards": rewards}


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "code_tools.py").write_text(TOOLS)
    file = tmp_path / "code.jsonl"
    file.write_text("".join(json.dumps(line(*pair)) + "\n" for pair in PAIRS.items()))
    yield file
    sys.modules.pop("code_tools", None)


def play(scenario: Scenario, *written: tuple[str, str]) -> Reward:
    [task] = [
        task
        for split in scenario.splits
        for task in scenario.tasks(split, 0, 20)
        if "Write add " in task.instruction
    ]
    calls = [
        ToolCall(name="write_file", arguments={"path": path, "text": text})
        for path, text in written
    ]
    made = Trajectory(
        rollout_id="r", scenario="code", task_id=task.id, steps=list(calls)
    )
    return scenario.calculate_reward(task, scenario.create_environment(task), made)


@pytest.mark.slow
def test_the_code_of_calls_is_paid_by_parts(tasks: Path) -> None:
    scenario = Scenario.from_tools("code_tools:TOOLS", tasks=tasks)
    right = play(scenario, ("add.py", "def add(a, b):\n    return b + a\n"))
    assert right.success
    assert set(right.parts) == {"correctness", "style", "security", "complexity"}
    assert sum(right.parts.values()) == pytest.approx(right.value) == pytest.approx(1)
    ugly = play(scenario, ("add.py", "import os\ndef add(a, b):\n    return b + a\n"))
    assert ugly.success
    assert 0.6 < ugly.value < right.value
    wrong = play(scenario, ("add.py", "def add(a, b):\n    return a\n"))
    assert (wrong.value, wrong.success) == (0.0, False)
    mended = play(
        scenario,
        ("add.py", "def add(a, b):\n    return a\n"),
        ("add.py", "def add(a, b):\n    return a + b\n"),
    )
    assert mended.success
    scenario.close()


def test_no_call_a_failed_call_and_bad_paths_earn_nothing(tasks: Path) -> None:
    scenario = Scenario.from_tools("code_tools:TOOLS", tasks=tasks)
    text = "def add(a, b):\n    return a + b\n"
    assert play(scenario).value < 0
    assert play(scenario, ("../add.py", text)).value == 0.0
    assert play(scenario, ("add.py", text), ("add.py/x.py", text)).value == 0.0
    [task] = scenario.tasks(Split.TRAIN, 0, 1)
    failed = ToolCall(
        name="write_file",
        arguments={"path": "add.py", "text": text},
        outcome=ToolOutcome.RAISED,
    )
    made = Trajectory(rollout_id="r", scenario="c", task_id=task.id, steps=[failed])
    environment = scenario.create_environment(task)
    assert scenario.calculate_reward(task, environment, made).value == 0.0
    scenario.close()


@pytest.mark.slow
def test_the_tripwires_prove_the_reference_and_that_own_tests_pay_nothing(
    tasks: Path,
) -> None:
    scenario = Scenario.from_tools("code_tools:TOOLS", tasks=tasks)
    examined = Examination(str(tasks), scenario, 6)
    found = {
        name: run_tripwire(name, examined)
        for name in ("rewards", "do-nothing", "call-everything", "code", "oracle")
    }
    assert {name: each.status for name, each in found.items()} == dict.fromkeys(
        found, "pass"
    )
    assert found["code"].why == "own tests and tidy files earn nothing"
    scenario.close()


def test_weights_and_a_workload_of_a_line_count(tasks: Path) -> None:
    changed = line(
        "add",
        "a+b",
        weights={"correctness": 3, "efficiency": 1},
        workload={"add.py": ["add(1, 2)"]},
    )
    lines = tasks.read_text().splitlines()
    tasks.write_text("\n".join([json.dumps(changed), *lines[1:]]))
    scenario = Scenario.from_tools("code_tools:TOOLS", tasks=tasks)
    reward = play(scenario, ("add.py", "def add(a, b):\n    return a + b\n"))
    assert reward.parts == pytest.approx({"correctness": 0.75, "efficiency": 0.25})
    scenario.close()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"code": None}, "rewards.code: Field required"),
        (
            {"code": {"tool": "save", "path": "path", "text": "text"}},
            'rewards.code.tool is "save"; there are: write_file, think',
        ),
        (
            {"code": {"tool": "write_file", "path": "file", "text": "text"}},
            "not an argument of 'write_file'; it takes path, text",
        ),
        ({"code": {"tool": "write_file", "text": "text"}}, "needs `path`"),
        ({"reference": {"add.py": 1}}, "rewards.reference.add.py: Input should be"),
        ({"hidden": None}, "needs hidden expressions"),
        ({"weights": {"style": 1}}, "leaves `correctness` out"),
        ({"weights": {"correctness": 1, "styl": 1}}, "did you mean 'style'"),
        ({"weights": {"correctness": 0}}, "a number above 0"),
        ({"weights": {"correctness": 1, "efficiency": 1}}, "belong together"),
        ({"hiden": {}}, "did you mean 'hidden'"),
    ],
)
def test_a_line_that_cannot_be_used_is_refused(
    tasks: Path, changes: dict[str, Any], says: str
) -> None:
    lines = tasks.read_text().splitlines()
    broken = json.dumps(line("add", "a+b", **changes))
    tasks.write_text("\n".join([broken, *lines[1:]]))
    with pytest.raises(UsageError, match="line 1: ") as raised:
        Scenario.from_tools("code_tools:TOOLS", tasks=tasks)
    assert says in str(raised.value)
