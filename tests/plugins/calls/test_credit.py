"""The credit of one sampled answer."""

import json
from typing import Any

import pytest

from agentgym import tool
from agentgym.core.needs import NeededCall
from agentgym.core.tools import check_call, tool_specs
from agentgym.core.trajectory import ModelCall, RequestedCall, ToolCall
from agentgym.plugins.calls.call_rollouts import answer_credit


class Shop:
    @tool
    def find(self, word: str, limit: int = 5) -> str:
        """Find a product."""
        return word

    @tool
    def order(self, item: str, note: str) -> str:
        """Order a product."""
        return item + note


SPECS = {spec.name: spec for spec in tool_specs(Shop)}
FIND = NeededCall("find", {"word": "tea"})
ORDER = NeededCall("order", {"item": "tea", "note": ""}, by_outcome=frozenset({"note"}))


def credit(
    calls: list[tuple[str, dict[str, Any]]],
    due: list[NeededCall],
    *,
    words: str | None = None,
    at_once: bool = False,
    succeeded: bool = False,
) -> float:
    asked = [
        RequestedCall(id=str(at), name=name, arguments=json.dumps(given))
        for at, (name, given) in enumerate(calls)
    ]
    made = [
        ToolCall(
            name=name,
            arguments=given,
            outcome=check_call(SPECS, name, json.dumps(given))[0],
        )
        for name, given in calls
    ]
    answer = ModelCall(content=words, tool_calls=asked)
    return answer_credit(answer, made, due, SPECS, at_once=at_once, succeeded=succeeded)


def test_parts_of_a_right_call_earn_more_and_more() -> None:
    due = [ORDER]
    ladder = [
        credit([], due, words="Ordered."),
        credit([("buy", {})], due),
        credit([("find", {"word": "tea"})], due),
        credit([("order", {"item": "milk", "note": "x"})], due),
        credit([("order", {"item": "tea", "note": "x"})], due, succeeded=True),
    ]
    assert ladder == sorted(set(ladder))
    assert (ladder[0], ladder[-1]) == (0.0, 1.0)


def test_a_default_or_a_lax_type_is_the_same_call() -> None:
    assert credit([("find", {"word": "tea", "limit": "5"})], [FIND]) == 1.0
    assert credit([("find", {"word": "tea", "limit": 9})], [FIND]) < 1.0


def test_words_are_right_where_nothing_is_left_to_do() -> None:
    assert credit([], [], words="Done.") == 1.0
    assert credit([], [], words=None) == 0.0
    assert credit([("find", {"word": "tea"})], [], words="Once more.") == 0.0


def test_an_argument_without_a_single_right_value_is_judged_by_the_outcome() -> None:
    free = [("order", {"item": "tea", "note": "no milk"})]
    assert credit(free, [ORDER], succeeded=True) == 1.0
    assert credit(free, [ORDER]) < 1.0


def test_a_later_call_first_is_right_only_if_it_led_to_the_goal() -> None:
    later = [("find", {"word": "tea"})]
    assert credit(later, [ORDER, FIND], succeeded=True) == 1.0
    assert credit(later, [ORDER, FIND]) == pytest.approx(0.3)


def test_calls_that_are_due_at_once_are_scored_together() -> None:
    one = ("find", {"word": "tea"})
    other = ("order", {"item": "tea", "note": "x"})
    due = [FIND, ORDER]
    both = credit([other, one], due, at_once=True, succeeded=True)
    assert both == 1.0
    assert credit([one], due, at_once=True) == 0.5
    assert credit([one, one, one], [FIND]) < 0.5, "more than was asked for"
