"""A scenario of tools and tasks: what it pays, and what its tools answer."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agentgym import Scenario, Split, Trajectory
from agentgym.core.background import in_background
from agentgym.core.tools import ToolOutcome, spec_of
from agentgym.errors import ScenarioError, UsageError
from agentgym.evaluate.baselines import Call, attempt
from agentgym.evaluate.check import check_scenario
from agentgym.evaluate.metrics import TaskResult
from agentgym.scenarios.registry import absolute_reference, get_scenario
from agentgym.scenarios.tool_tasks.scenario import ToolScenario
from tests.scenarios.tool_tasks.shop import lines, write

TOOLS = "shop_tools:TOOLS"


def with_line(path: Path, line: dict[str, Any], **options: Any) -> ToolScenario:
    """Return the scenario with one line more, whose id is ``mine``."""
    write(path, [*lines(), {"id": "mine", "split": "train", **line}])
    made = Scenario.from_tools(TOOLS, tasks=path, **options)
    assert isinstance(made, ToolScenario)
    return made


def play(scenario: Scenario, *calls: tuple[str, dict[str, Any]]) -> Trajectory:
    """Make calls in the task ``mine``."""
    [task] = [t for t in scenario.tasks(Split.TRAIN, 0, 99) if t.id == "mine"]
    return in_background(attempt(scenario, task, [Call(*call) for call in calls]))


def track(order: int) -> tuple[str, dict[str, Any]]:
    return "track_order", {"order_id": order}


def cancel(order: int, **more: Any) -> tuple[str, dict[str, Any]]:
    return "cancel_order", {"order_id": order, **more}


def expected(*calls: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"tool": name, "args": args} for name, args in calls]


BOTH = {
    "instruction": "Look at 71 and 72.",
    "expect": expected(track(71), cancel(72, reason={"one_of": ["late", "lost"]})),
}


def test_success_is_every_call_in_order_with_an_accepted_value(shop: Path) -> None:
    scenario = with_line(shop, BOTH)
    for reason in ("late", "lost"):
        good = play(scenario, track(71), cancel(72, reason=reason))
        assert (good.success, good.reward) == (True, 1.0)
        assert (good.right_tool, good.right_arguments) == (1.0, 1.0)
    wrong_order = play(scenario, cancel(72, reason="late"), track(71))
    wrong_value = play(scenario, track(71), cancel(72, reason="bored"))
    for half in (wrong_order, wrong_value):
        assert not half.success
        assert half.reward == pytest.approx(0.225)
        assert half.right_arguments == 0.5


def test_unordered_calls_may_come_in_any_order_and_each_counts_once(shop: Path) -> None:
    scenario = with_line(shop, {**BOTH, "ordered": False})
    assert play(scenario, cancel(72, reason="late"), track(71)).success
    twice = {"instruction": "Twice.", "expect": expected(track(5), track(5))}
    for ordered in (True, False):
        scenario = with_line(shop, {**twice, "ordered": ordered})
        assert not play(scenario, track(5)).success
        assert play(scenario, track(5), track(5)).success


def test_alternatives_may_be_of_other_tools(shop: Path) -> None:
    options = expected(track(5), ("list_orders", {"customer": "Zoe"}))
    scenario = with_line(
        shop, {"instruction": "Zoe, 5?", "expect": [{"any": options, "answer": "x"}]}
    )
    assert play(scenario, track(5)).success
    other = play(scenario, ("list_orders", {"customer": "Zoe", "state": "all"}))
    assert other.success
    assert other.get_tool_calls()[0].result == "x"
    assert not play(
        scenario, ("list_orders", {"customer": "Zoe", "state": "open"})
    ).success


def test_calls_of_the_agents_own_code_are_not_the_models(shop: Path) -> None:
    scenario = with_line(shop, BOTH)
    [task] = [t for t in scenario.tasks(Split.TRAIN, 0, 99) if t.id == "mine"]
    made = play(
        scenario,
        cancel(72, reason="late"),
        track(71),
        ("list_orders", {"customer": "Z"}),
    )
    assert not made.success
    [asking, *_] = made.model_calls
    asking.tools = [spec.to_openai() for spec in scenario.tools()]
    del asking.tool_calls[1:]  # the agent's code tracked and listed
    scored = scenario.calculate_reward(task, scenario.create_environment(task), made)
    assert (scored.success, scored.value) == (True, 1.0)
    counted = TaskResult.of([made], None).sums["tool_reliability"]
    assert counted == (1, 1)


def test_anything_accepts_every_value_but_no_wrong_type(shop: Path) -> None:
    free = expected(cancel(5, reason={"anything": True}))
    scenario = with_line(shop, {"instruction": "Off with 5.", "expect": free})
    assert play(scenario, cancel(5, reason="who knows")).success
    assert not play(scenario, cancel(5, reason=7)).success
    assert not play(scenario, cancel(6, reason="who knows")).success


def test_a_forbidden_call_is_refused_and_worst(shop: Path) -> None:
    scenario = with_line(shop, {**BOTH, "forbid": ["refund"]})
    bad = play(
        scenario,
        track(71),
        cancel(72, reason="late"),
        ("refund", {"order_id": 71, "amount": 1.0}),
    )
    assert (bad.success, bad.reward) == (False, scenario.reward_range[0])
    assert bad.get_tool_calls()[-1].outcome is ToolOutcome.RULE_BROKEN


def test_stopping_early_pays_no_more_than_trying(shop: Path) -> None:
    scenario = with_line(shop, BOTH)
    nothing = play(scenario).reward
    useless = play(scenario, ("nonsense", {})).reward
    stopped = play(scenario, track(71)).reward
    tried = play(scenario, track(71), cancel(99)).reward
    strayed = play(scenario, track(71), ("list_orders", {"customer": "x"})).reward
    assert nothing is not None
    assert -0.05 <= nothing < 0.0
    assert (useless, stopped) == (0.0, pytest.approx(0.225))
    assert stopped == tried == strayed


def test_looking_twice_is_slow_and_calling_everything_is_wrong(shop: Path) -> None:
    one = {"instruction": "Where is 5?", "expect": expected(track(5))}
    scenario = with_line(shop, one, answers="stub")
    listed = [("list_orders", {"customer": name}) for name in "abcdefghijklmno"]
    for count, left in ((0, 1.0), (1, 0.95), (4, 0.8), (15, 0.5)):
        looked = play(scenario, *listed[:count], track(5))
        assert (looked.success, looked.reward) == (True, pytest.approx(left))
        again = play(scenario, *[track(5)] * (count + 1))
        assert (again.success, again.reward) == (True, pytest.approx(left))
    everything = play(
        scenario,
        track(5),
        listed[0],
        cancel(5),
        ("refund", {"order_id": 5, "amount": 1}),
    )
    assert (everything.success, everything.reward) == (False, 0.0)


def test_recorded_answers_come_from_the_line_then_the_file_beside(shop: Path) -> None:
    beside = {"tool": "list_orders", "args": {"customer": "Zoe"}, "answer": [7, 8]}
    shop.with_suffix(".answers.jsonl").write_text(json.dumps(beside) + "\n")
    own = {"tool": "refund", "args": {"order_id": 5, "amount": 1}, "answer": "no"}
    line = {
        "instruction": "Where is 5?",
        "expect": [{**expected(track(5))[0], "answer": {"status": "lost"}}],
        "answers": [own],
    }
    made = play(
        with_line(shop, line),
        track(5),
        ("list_orders", {"customer": "Zoe"}),
        ("refund", {"order_id": 5, "amount": 1.0}),
    )
    results = [call.result for call in made.get_tool_calls()]
    assert results == ['{"status": "lost"}', "[7, 8]", "no"]


def test_what_was_not_recorded_is_a_clear_error(shop: Path) -> None:
    made = play(with_line(shop, BOTH), track(99))
    [call] = made.get_tool_calls()
    assert call.outcome is ToolOutcome.RAISED
    assert "nothing is recorded for track_order" in call.result
    assert '"order_id": 99' in call.result


def test_stub_answers_fit_the_type_and_tell_what_is_needed(shop: Path) -> None:
    line = {
        "instruction": "Call off what Zoe ordered.",
        "expect": expected(("list_orders", {"customer": "Zoe"}), cancel(4711)),
    }
    for answers in ("recorded", "stub"):
        scenario = with_line(shop, line, answers=answers)
        first = play(scenario, ("list_orders", {"customer": "Zoe"}), cancel(4711))
        again = play(scenario, ("list_orders", {"customer": "Zoe"}), cancel(4711))
        results = [call.result for call in first.get_tool_calls()]
        assert results == [call.result for call in again.get_tool_calls()]
        assert first.success
        assert "4711" in results[0]
    other = play(with_line(shop, line, answers="stub"), track(3)).get_tool_calls()[0]
    assert other.outcome is ToolOutcome.OK
    assert all(isinstance(v, str) for v in json.loads(other.result).values())


def called() -> list[Any]:
    found: list[Any] = sys.modules["shop_tools"].CALLS
    return found


def test_only_allowed_tools_are_ever_called(shop: Path) -> None:
    allow = ["track_order", "cancel_order"]
    scenario = with_line(shop, BOTH, answers="live", allow=allow)
    made = play(scenario, track(71), ("list_orders", {"customer": "Anna"}), cancel(72))
    assert called() == [("track_order", 71), ("cancel_order", 72)]
    results = [call.result for call in made.get_tool_calls()]
    assert results[0] == '{"status": "live"}'
    assert "nothing is recorded" in results[1]
    assert results[2] == "Error: RuntimeError: it was sent already"


@pytest.mark.slow
def test_tripwires_call_no_live_tool(shop: Path) -> None:
    scenario = with_line(shop, BOTH, answers="live", allow=["track_order"])
    findings = check_scenario(scenario.reference, tasks=6)
    assert {f.status for f in findings} <= {"pass", "warn"}
    assert called() == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"answers": "live"}, "--allow-tool NAME, of track_order"),
        ({"answers": "live", "allow": ["refnd"]}, "Did you mean 'refund'"),
        ({"allow": ["refund"]}, "would not be called"),
        ({"answers": "alive"}, "recorded, stub, live, not 'alive'"),
        ({"check": "shop_tools:TOOLS"}, "not a function check"),
        ({"check": "shop_tools:no_state"}, "with a task, its calls and a state"),
        ({"check": "shop_tools:none"}, "has no 'none'"),
    ],
)
def test_wrong_arguments_are_refused(shop: Path, options: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        Scenario.from_tools(TOOLS, tasks=shop, **options)


def test_tools_that_cannot_be_imported_are_refused(shop: Path) -> None:
    (shop.parent / "broken_tools.py").write_text("1 / 0\n")
    for reference, told in (
        ("shop_tools", "takes module:name"),
        ("no_such_module:TOOLS", "Cannot import 'no_such_module'"),
        ("broken_tools:TOOLS", "ZeroDivisionError"),
    ):
        with pytest.raises(UsageError, match=told):
            Scenario.from_tools(reference, tasks=shop)


@pytest.mark.slow
def test_a_check_function_scores_instead(shop: Path) -> None:
    line = {"instruction": "Look, somehow.", "forbid": ["refund"]}
    scenario = with_line(shop, line, check="shop_tools:check")
    found = play(scenario, track(1))  # answered with made-up values
    assert (found.success, found.get_tool_calls()[0].outcome) == (True, ToolOutcome.OK)
    both = {**line, "expect": expected(track(2))}
    known = with_line(shop, both, check="shop_tools:check")
    assert play(known, track(1)).get_tool_calls()[0].outcome is ToolOutcome.RAISED
    idle = play(scenario)
    assert (idle.success, idle.reward) == (False, 0.0)
    paid = ("refund", {"order_id": 5, "amount": 1.0})
    assert play(scenario, track(1), paid).reward == -1.0
    half = with_line(shop, line, check="shop_tools:half")
    assert (play(half).success, play(half).reward) == (False, 0.5)
    assert play(with_line(shop, line, check="shop_tools:numpy_half")).reward == 0.5
    with pytest.raises(UsageError, match="is an `async def` function"):
        with_line(shop, line, check="shop_tools:later")
    dropped = play(with_line(shop, line, check="shop_tools:wild"))
    assert dropped.reward is None
    assert "returned 7 for task mine" in str(dropped.reason)


def test_the_reference_finds_the_same_scenario_from_anywhere(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Scenario.from_tools(
        TOOLS, tasks="orders.jsonl", check="shop_tools:check", name="Mine!"
    )
    assert isinstance(made, ToolScenario)
    monkeypatch.chdir("/")
    assert absolute_reference(made.reference) == made.reference
    again = get_scenario(made.reference)
    assert again.name == made.name == "mine"
    assert again.tasks(Split.TEST, 0, 9) == made.tasks(Split.TEST, 0, 9)


@pytest.mark.slow
def test_functions_are_found_again_if_they_can_be_imported(shop: Path) -> None:
    from_text = Scenario.from_tools(TOOLS, tasks=shop)
    tools = sys.modules["shop_tools"].TOOLS
    made = Scenario.from_tools(tools, tasks=shop, check=sys.modules["shop_tools"].check)
    assert isinstance(made, ToolScenario)
    again = get_scenario(made.reference)
    assert again.card()["tools"] == from_text.card()["tools"]

    def local(x: int) -> str:
        """Do it."""
        return ""

    pairs = [(spec_of(function), function) for function in tools]
    assert len(Scenario.from_tools(pairs, tasks=shop).tools()) == 4
    kept = Scenario.from_tools([*tools, local], tasks=shop)
    assert isinstance(kept, ToolScenario)
    assert [spec.name for spec in kept.tools()][-1] == "local"
    with pytest.raises(UsageError, match="local cannot be imported by the processes"):
        _ = kept.reference


@pytest.mark.slow
def test_a_sensible_file_passes_the_tripwires(shop: Path) -> None:
    for reference in (
        f"orders.jsonl?tools={TOOLS}",
        f"orders.jsonl?tools={TOOLS}&answers=stub",
    ):
        statuses = {f.name: f.status for f in check_scenario(reference, tasks=12)}
        assert statuses.pop("tasks") == "warn"
        assert set(statuses.values()) == {"pass"}


@pytest.mark.parametrize(
    ("reference", "error", "told"),
    [
        ("orders.jsonl", UsageError, "whose tools does it call"),
        (f"orders.jsonl?tool={TOOLS}", UsageError, "no option 'tool'"),
        (f"none.jsonl?tools={TOOLS}", UsageError, "Cannot read"),
        (f"coding.jsonl?tools={TOOLS}", ScenarioError, "Give it another name"),
    ],
)
def test_references_that_mean_nothing_are_refused(
    shop: Path, reference: str, error: type[Exception], told: str
) -> None:
    write(shop.with_name("coding.jsonl"), lines())
    with pytest.raises(error, match=told):
        get_scenario(reference)
