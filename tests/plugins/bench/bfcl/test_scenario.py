"""BFCL as a scenario, on a made-up package of its shape."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agentgym import Split, Task, Trajectory
from agentgym.core.background import in_background
from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import ModelCall, RequestedCall
from agentgym.errors import NotFoundError, UsageError
from agentgym.evaluate.baselines import Call, attempt
from agentgym.evaluate.check import check_scenario
from agentgym.plugins.bench.bfcl import package
from agentgym.plugins.bench.bfcl.scenario import answer_calls
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.registry import absolute_reference, get_scenario
from agentgym.scenarios.task_lists import tasks_to_measure, tools_of
from tests.cli.conftest import Command, agentgym
from tests.plugins.bench.bfcl.made_up import trust, write_package, zipped

__all__ = ["agentgym"]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    trust(monkeypatch)
    monkeypatch.setenv("AGENTGYM_HOME", str(tmp_path / "home"))
    return write_package(tmp_path / "data")


def play(scenario: Scenario, task: Task, *calls: tuple[str, Any]) -> Trajectory:
    return in_background(attempt(scenario, task, [Call(*call) for call in calls]))


def of(scenario: Scenario, category: str) -> Task:
    tasks = tasks_to_measure(scenario, "all", 0, 999)
    return next(task for task in tasks if task.family == category)


def test_right_and_wrong_answers_of_each_kind(data: Path) -> None:
    scenario = get_scenario(f"bfcl?data={data}")
    assert "bfcl_eval" not in sys.modules
    task = of(scenario, "simple_python")
    number = task.id.rpartition("_")[2]
    name, right = f"simple_python_book_{number}", {"place": f"P{number}"}
    good = play(scenario, task, (name, right))
    assert (good.success, good.reward, good.reason) == (True, 1.0, None)
    assert len(good.model_calls) == 1  # the answer ends the episode
    wrong = play(scenario, task, (name, {"place": "elsewhere"}))
    assert (wrong.success, wrong.reward) == (False, 0.2)
    assert (wrong.right_tool, wrong.right_arguments) == (1.0, 0.0)
    for calls in ([], [("book", right)], [(name, right), (name, right)]):
        assert play(scenario, task, *calls).reward == 0.0
    invalid = play(scenario, task, (name, {"day": "Monday"}))
    [call] = invalid.get_tool_calls()
    assert (call.outcome, invalid.success) == (ToolOutcome.INVALID_ARGUMENTS, False)
    both = of(scenario, "live_parallel")
    number = both.id.rpartition("_")[2]
    one = (f"live_parallel_book_{number}", {"place": f"P{number}"})
    assert play(scenario, both, one, one).success
    half = play(scenario, both, one)
    assert (half.success, half.right_arguments) == (False, 0.5)
    for category in ("irrelevance", "live_irrelevance"):
        none = of(scenario, category)
        assert play(scenario, none).success
        tool = tools_of(scenario, none)[0].name
        assert not play(scenario, none, (tool, {"place": "x"})).success
        assert scenario.needed_calls(none) == []
    any_call = of(scenario, "live_relevance")
    assert not play(scenario, any_call).success
    tool = tools_of(scenario, any_call)[0].name
    assert play(scenario, any_call, (tool, {})).success


def test_functions_are_told_as_the_benchmark_tells_them(data: Path) -> None:
    scenario = get_scenario(f"bfcl?data={data}")
    [java] = tools_of(scenario, of(scenario, "simple_java"))
    assert "Java 8" in java.description
    place = java.parameters["properties"]["place"]
    told = "Where. This is Java String type parameter in string representation."
    assert place == {"type": "string", "description": told}
    assert of(scenario, "live_simple").instruction.startswith("Be quick.\n\nlive")


def test_the_first_answer_with_calls_counts_but_no_hand_over() -> None:
    def asked(*names: str) -> list[RequestedCall]:
        return [RequestedCall(id=n, name=n, arguments='{"a": 1}') for n in names]

    tools = [{"type": "function", "function": {"name": n}} for n in ("go", "book")]
    steps = [
        ModelCall(tools=tools, tool_calls=asked("go")),
        ModelCall(tools=tools, tool_calls=asked("book", "invented")),
        ModelCall(tools=tools, tool_calls=asked("book")),
    ]
    made = Trajectory(rollout_id="r", scenario="bfcl", task_id="t", steps=steps)
    assert [c.name for c in answer_calls(made, {"book"})] == ["book", "invented"]


def test_splits_share_no_function_and_all_has_every_entry(data: Path) -> None:
    scenario = get_scenario(f"bfcl?data={data}")
    names = {
        split: {s.name for t in scenario.tasks(split, 0, 999) for s in _tools(t)}
        for split in scenario.splits
        for _tools in [lambda task: tools_of(scenario, task)]
    }
    assert not names[Split.TRAIN] & names[Split.TEST]
    train = len(scenario.tasks(Split.TRAIN, 0, 999))
    assert f"training takes {train} entries of BFCL v4" in scenario.notes()[0]
    every = tasks_to_measure(scenario, "all", 0, 999)
    assert len({task.id for task in every}) == 13 * 12
    some = tasks_to_measure(scenario, "all", 0, 13)
    assert len({task.family for task in some}) == 13
    train = {task.family for task in scenario.tasks(Split.TRAIN, 0, 999)}
    assert "live_relevance" not in train
    few = get_scenario(f"bfcl?data={data}&categories=multiple,live_simple")
    found = {task.family for task in tasks_to_measure(few, "all", 0, 999)}
    assert found == {"multiple", "live_simple"}


@pytest.mark.slow
def test_it_passes_its_own_check(data: Path) -> None:
    reference = f"bfcl?data={data}"
    found = {f.name: f for f in check_scenario(reference, tasks=10)}
    failed = {n: f.why for n, f in found.items() if f.status == "fail"}
    failed.pop("determinism", None)  # other processes do not trust this checker
    assert not failed
    assert found["oracle"].status == "pass"


def test_a_wheel_is_read_as_a_folder_is(data: Path, tmp_path: Path) -> None:
    wheel = zipped(data, tmp_path / "some.whl")
    tasks = get_scenario(f"bfcl?data={wheel}").tasks(Split.TEST, 3, 20)
    assert tasks == get_scenario(f"bfcl?data={data}").tasks(Split.TEST, 3, 20)


def test_references_mean_the_same_from_anywhere(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data.parent)
    found = absolute_reference("bfcl?data=data&categories=live")
    assert found == f"bfcl?data={data}&categories=live"
    assert absolute_reference("bfcl") == "bfcl"


def test_data_that_cannot_be_used_are_refused_with_a_sentence(
    data: Path, tmp_path: Path
) -> None:
    def refused(reference: str) -> str:
        with pytest.raises(UsageError) as error:
            get_scenario(reference)
        return str(error.value)

    assert "agentgym scenarios fetch bfcl" in refused("bfcl")
    old = zipped(data, tmp_path / "old.whl", version="2025.12.17")
    assert "is bfcl-eval 2025.12.17; 2026.3.23 is the" in refused(f"bfcl?data={old}")
    assert "no such file" in refused(f"bfcl?data={tmp_path / 'none'}")
    (tmp_path / "text.whl").write_text("no wheel")
    assert "neither a folder nor a wheel" in refused(f"bfcl?data={tmp_path}/text.whl")
    assert "has no option 'date'; it has data" in refused(f"bfcl?date={data}")
    assert "coding has no option 'data'; it has none" in refused("coding?data=x")
    with pytest.raises(NotFoundError, match="Did you mean 'multiple'"):
        get_scenario(f"bfcl?data={data}&categories=multipel")
    root = data / package.NAME
    answers = root / "data/possible_answer/BFCL_v4_multiple.json"
    lines = answers.read_text().splitlines()
    answers.write_text("\n".join(lines[1:]))
    told = "of multiple has no answer"
    assert told in refused(f"bfcl?data={data}")
    answers.unlink()
    assert "possible_answer/BFCL_v4_multiple.json" in refused(f"bfcl?data={data}")
    answers.write_text("\n".join(lines))
    entries = root / "data/BFCL_v4_parallel.json"
    entries.write_text(json.dumps({"id": "parallel_0"}))
    assert "'parallel_0'" in refused(f"bfcl?data={data}")
    checker = root / package.CHECKER[2]
    checker.write_text(checker.read_text() + "\n")
    assert "other checkers than bfcl-eval 2026.3.23" in refused(f"bfcl?data={data}")


def test_the_command_takes_data_and_categories(data: Path, agentgym: Command) -> None:
    words = ("eval", "bfcl", "--model", "nano", "--data", str(data))
    done = agentgym(*words, "--categories", "simpel")
    assert (done.code, "Did you mean 'simple'?" in done.err) == (2, True)
    done = agentgym("eval", "./pack", "--model", "nano", "--data", str(data))
    assert (done.code, "--data is for a benchmark" in done.err) == (2, True)
    done = agentgym("train", "bfcl", "--dry-run")
    assert (done.code, "scenarios fetch bfcl" in done.err) == (2, True)
    done = agentgym("scenarios", "fetch", "coding")
    assert (done.code, "Available: bfcl" in done.err) == (2, True)
