"""Injected faults: recorded as such, repeatable, and no mistake of the model."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.core.task import Split, Task
from agentgym.core.tools import Tool, ToolOutcome, spec_of
from agentgym.core.trajectory import Trajectory
from agentgym.engines.credit import call_failures
from agentgym.errors import ConfigError
from agentgym.evaluate.call_classes import CallClass
from agentgym.evaluate.evaluation import judge
from agentgym.evaluate.metrics import Metrics
from agentgym.plugins.faults.inject import MARK, WITH_FAULTS, Faults, add_faults, rename
from agentgym.rollout import run_rollouts_sync
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.registry import get_scenario, scenario_of
from tests.cli.conftest import Command, agentgym
from tests.some import some

__all__ = ["agentgym"]

TASK = Task(id="t", split=Split.TEST, seed=3, family="f", level=1, instruction="?")


def scenario(**rates: float) -> Scenario:
    groups = {"faults": {"rates": rates}}
    return scenario_of("coding", groups)


async def persistent(messages: list[dict[str, Any]], **_: Any) -> Any:
    """List the files until the tool answers, then stop."""
    last = messages[-1]
    if last["role"] == "tool" and not str(last["content"]).startswith("Error"):
        return "Done."
    call = {"name": "list_files", "arguments": "{}"}
    number = f"c{len(messages)}"
    calls = [{"id": number, "type": "function", "function": call}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def attempt(found: Scenario, tasks: list[Task]) -> list[Trajectory]:
    return run_rollouts_sync(tasks, llm=persistent, reward=found).trajectories


def test_a_fault_is_recorded_and_is_not_the_model_s_mistake() -> None:
    found = scenario(timeout=0.3, error=0.3)
    tasks = found.tasks(Split.TEST, 0, 6)
    marked = found.variants(tasks)[WITH_FAULTS]
    assert [task.id for task in marked] == [f"{task.id}{MARK}" for task in tasks]
    made = attempt(found, marked)
    calls = [call for each in made for call in each.get_tool_calls()]
    faulty = [call for call in calls if call.fault]
    assert {call.fault for call in faulty} == {"timeout", "error"}
    assert all(call.outcome is ToolOutcome.RAISED for call in faulty)
    assert all(call.result.startswith("Error: ") for call in faulty)
    assert not any(call.failed for call in calls)
    assert len(faulty) < len(calls), "the model recovered"
    metrics = Metrics.of(made, k=1)
    assert metrics.tool_reliability.value == 1.0
    assert not any(any(call_failures(each)) for each in made)
    attempts, _ = judge(found, marked, made)
    assert sum(each.calls.get(CallClass.FAULT, 0) for each in attempts) == len(faulty)
    again = attempt(found, marked)
    assert [[c.fault for c in t.get_tool_calls()] for t in again] == [
        [c.fault for c in t.get_tool_calls()] for t in made
    ]
    untouched = attempt(found, tasks)
    assert not any(c.fault for t in some(untouched) for c in t.get_tool_calls())


def test_tasks_for_training_have_faults_only_in_training() -> None:
    plain, trained = get_scenario("coding"), get_scenario("coding")
    add_faults(plain, {"rates": {"error": 0.1}}, trains=False)
    add_faults(trained, {"rates": {"error": 0.1}}, trains=True)
    for split, has in ((Split.TRAIN, True), (Split.TEST, False)):
        assert not any(t.id.endswith(MARK) for t in some(plain.tasks(split, 0, 3)))
        assert all(t.id.endswith(MARK) == has for t in some(trained.tasks(split, 0, 3)))
    assert not get_scenario("coding").variants([TASK])
    task = trained.tasks(Split.TRAIN, 0, 1)[0]
    assert trained.needed_calls(task) == plain.needed_calls(
        task.model_copy(update={"id": task.id.removesuffix(MARK)})
    )


async def answers(tool: Tool, count: int, **arguments: Any) -> list[Any]:
    return [await tool(**arguments) for _ in range(count)]


async def test_a_stale_result_is_that_of_an_earlier_equal_call() -> None:
    counted = iter(range(100))

    def look(what: str) -> str:
        """Look something up."""
        return f"{what} {next(counted)}"

    tool = Faults({"stale": 1.0}, TASK).wrap(Tool(spec_of(look), look))
    found = await answers(tool, 3, what="a")
    assert found == ["a 0", "a 0", "a 0"]
    assert [getattr(each, "kind", "") for each in found] == ["", "stale", "stale"]
    assert await answers(tool, 1, what="b") == ["b 1"]


async def test_a_field_is_renamed_and_nothing_else() -> None:
    def order(number: int) -> dict[str, Any]:
        """Return an order."""
        return {"order_id": number, "status": "sent"}

    tool = Faults({"renamed": 1.0}, TASK).wrap(Tool(spec_of(order), order))
    [found] = await answers(tool, 1, number=4)
    assert json.loads(found) == {"orderId": 4, "status": "sent"}
    assert (found.kind, found.outcome) == ("renamed", ToolOutcome.OK)
    assert rename('{"status": "sent"}') == '{"status_value": "sent"}'
    assert [rename(text) for text in ("[1]", "{}", "done")] == ["", "", ""]


@pytest.mark.parametrize(
    "given",
    [
        "timeout=0.05,error=0.1",
        ["timeout=0.05", "error=0.1"],
    ],
)
def test_shares_are_given_as_texts_or_numbers(given: Any) -> None:
    config = TrainingConfig.create(faults=given)
    rates = {"timeout": 0.05, "error": 0.1}
    assert config.plugin_groups["faults"] == {"rates": rates}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("timout=0.1", "'timout' is not a kind of fault; known: timeout, error"),
        ("timeout", "write shares of calls, as in timeout=0.05,error=0.05"),
        ("timeout=0.6,error=0.6", "at most 1 together"),
    ],
)
def test_wrong_shares_are_refused(given: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("(", r"\(")):
        TrainingConfig.create(faults=given)


@pytest.mark.slow  # an evaluation, a training
def test_the_tables_have_a_row_with_faults(agentgym: Command) -> None:
    small = ["--framework", "native", "--model", "nano"]
    faults = ["--faults", "timeout=0.2,error=0.2"]
    words = ["--count", "6", "--samples", "2", "--no-baselines", "--markdown", "r.md"]
    ended = agentgym("eval", "coding", *small, *faults, *words)
    assert ended.code == 0, ended.err
    assert WITH_FAULTS in ended.out
    few = ("eval_tasks=4", "test_tasks=6", "eval_samples=1", "forgetting_questions=0")
    given = [word for each in few for word in ("--set", each)]
    short = ["--episodes", "64", "--yes", "--set", "tracker=none"]
    ended = agentgym("train", "coding", *small, *faults, *given, *short)
    assert ended.code == 0, ended.err
    assert "With faults" in ended.out
    [run] = map(str, Path("runs").iterdir())
    ended = agentgym("runs", "export", run, "out.jsonl", "--format", "jsonl")
    assert ended.code == 0, ended.err
    lines = map(json.loads, Path("out.jsonl").read_text().splitlines())
    steps = [step for line in lines for step in line["steps"]]
    kinds = {step.get("fault") for step in some(steps)}
    assert kinds >= {"timeout", "error"}
