"""Composed rewards: parts that add up, and what cannot be bought."""

import math
from collections.abc import Mapping
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.core.trajectory import Reward
from agentgym.errors import ScenarioError
from agentgym.packs.kit.code_rewards import (
    Complexity,
    ComposedReward,
    Correctness,
    RewardPart,
    Security,
    Style,
    SubmittedCode,
)
from agentgym.sandbox import Sandbox

RIGHT = "def total(prices):\n    return sum(prices)\n"
START = {
    "shop.py": "def total(prices):\n    return 0\n",
    "tests/test_shop.py": "from shop import total\n\n\ndef test_total():\n"
    "    assert total([2, 3]) == 5\n",
}
EQUALS_ALL = (
    "class Any:\n    def __eq__(self, other):\n        return True\n\n\n"
    "def total(prices):\n    return Any()\n"
)
HIDDEN = {"shop.py": {"total([2, 3])": 5, "total([])": 0, "total([4])": 4}}
REWARD = ComposedReward(
    (Correctness(HIDDEN), 6), (Style(), 1), (Security(), 2), (Complexity(), 1)
)


def paid(sandbox: Sandbox, changes: Mapping[str, str]) -> Reward:
    files = {**START, **changes}
    return REWARD.score(SubmittedCode(files=files, start=START, sandbox=sandbox))


def test_a_right_and_clean_solution_earns_every_part_in_full(sandbox: Sandbox) -> None:
    reward = paid(sandbox, {"shop.py": RIGHT})
    assert reward.success
    assert reward.parts == pytest.approx(
        {"correctness": 0.6, "style": 0.1, "security": 0.2, "complexity": 0.1}
    )
    assert math.isclose(reward.value, 1.0)


@pytest.mark.parametrize(
    ("changes", "lost"),
    [
        ({"shop.py": "import os\n\n\n" + RIGHT}, {"style"}),
        ({"shop.py": RIGHT, "new.py": "import os\n"}, {"style"}),
        ({"shop.py": RIGHT, "tests/test_new.py": "import os\n"}, {"style"}),
        (
            {"shop.py": "def total(prices):\n    return eval(repr(sum(prices)))\n"},
            {"security"},
        ),
        (
            {
                "shop.py": "def total(prices):\n"
                + "".join(
                    f"    if prices == {n}:\n        return 0\n" for n in range(14)
                )
                + "    return sum(prices)\n"
            },
            {"complexity"},
        ),
    ],
)
def test_a_problem_costs_its_own_part_alone(
    sandbox: Sandbox, changes: dict[str, str], lost: set[str]
) -> None:
    reward = paid(sandbox, changes)
    assert reward.success
    assert {n for n, v in reward.parts.items() if v < REWARD.weights[n] - 1e-9} == lost
    assert math.isclose(sum(reward.parts.values()), reward.value)


@pytest.mark.parametrize(
    "wrong",
    [
        "def total(prices):\n    return len(prices)\n",
        '"""Add prices."""\n\n\ndef total(prices):\n    """Add."""\n    return None\n',
        EQUALS_ALL,
        "import os\n\n\ndef total(prices):\n    os._exit(0)\n",
    ],
)
def test_a_wrong_solution_buys_nothing_with_its_style(
    sandbox: Sandbox, wrong: str
) -> None:
    ugly = "import os\nimport sys\n\n" + RIGHT
    reward = paid(sandbox, {"shop.py": wrong})
    assert not reward.success
    assert all(reward.parts[name] == 0 for name in ("style", "security", "complexity"))
    assert reward.value < paid(sandbox, {"shop.py": ugly}).value / 2


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tests/test_own.py": "def test_it():\n    assert True\n"},
        {"tests/test_shop.py": "def test_total():\n    assert True\n"},
        {"notes.py": '"""Notes."""\n'},
        {"conftest.py": "import shop\n\nshop.total = sum\n"},
        {"tests/__init__.py": "import shop\n\nshop.total = sum\n"},
    ],
)
def test_tests_that_the_agent_wrote_or_edited_pay_nothing(
    sandbox: Sandbox, changes: dict[str, str]
) -> None:
    reward = paid(sandbox, changes)
    assert (reward.value, reward.success) == (0.0, False)


def test_a_solution_that_lives_in_a_test_file_is_not_there(sandbox: Sandbox) -> None:
    hidden = {"shop.py": "from tests.impl import total\n", "tests/impl.py": RIGHT}
    assert paid(sandbox, hidden).value == 0.0


def test_values_that_were_right_at_the_start_are_not_paid(sandbox: Sandbox) -> None:
    """``total([])`` is 0 at the start: one of the two wrong ones is half."""
    half = "def total(prices):\n    return 5 if prices else 0\n"
    reward = paid(sandbox, {"shop.py": half})
    assert reward.parts["correctness"] == pytest.approx(0.6 * 0.5 * 0.5)


def test_problems_that_were_there_at_the_start_cost_nothing(sandbox: Sandbox) -> None:
    start = {"shop.py": "import os\n\n\ndef total(prices):\n    return 0\n"}
    files = {"shop.py": "import os\n\n\n" + RIGHT}
    code = SubmittedCode(files=files, start=start, sandbox=sandbox)
    assert Style().share(code) == 1.0
    worse = {"shop.py": "import os\nimport sys\n\n\n" + RIGHT}
    code = SubmittedCode(files=worse, start=start, sandbox=sandbox)
    assert Style().share(code) == pytest.approx(0.8)


class _Fixed(RewardPart[float]):
    name: ClassVar[str] = "fixed"

    def share(self, evidence: float) -> float:
        return evidence


class _Other(_Fixed):
    name: ClassVar[str] = "other"

    def share(self, evidence: float) -> float:
        return 1.0


@given(
    share=st.floats(0, 1),
    weights=st.tuples(st.floats(0.01, 100), st.floats(0.01, 100)),
    partial=st.floats(0, 1),
)
def test_parts_add_up_and_only_a_right_result_is_a_success(
    share: float, weights: tuple[float, float], partial: float
) -> None:
    reward = ComposedReward(
        (_Fixed(), weights[0]), (_Other(), weights[1]), partial=partial
    )
    scored = reward.score(share)
    assert math.isclose(sum(scored.parts.values()), scored.value, abs_tol=1e-12)
    assert 0.0 <= scored.value <= 1.0 + 1e-12
    assert scored.success == (share == 1.0)
    assert scored.value <= reward.score(1.0).value + 1e-12
    if not scored.success:
        assert scored.parts["other"] == 0.0


def test_bad_weights_names_and_shares_are_refused() -> None:
    for weight in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ScenarioError, match="a number above 0"):
            ComposedReward((_Fixed(), weight))
    with pytest.raises(
        ScenarioError, match="Two parts of the reward are named 'fixed'"
    ):
        ComposedReward((_Fixed(), 1.0), (_Fixed(), 1.0))
    with pytest.raises(ScenarioError, match="partial is 2"):
        ComposedReward((_Fixed(), 1.0), partial=2)
    for share in (1.5, -0.1, math.nan):
        with pytest.raises(ScenarioError, match="a number from 0 to 1"):
            ComposedReward((_Fixed(), 1.0)).score(share)


def test_quality_of_another_language_is_not_measured_silently(sandbox: Sandbox) -> None:
    code = SubmittedCode(files={"main.js": "let x = 1\n"}, sandbox=sandbox)
    for part in (Style(), Security(), Complexity()):
        with pytest.raises(ScenarioError, match="write a RewardPart of your own"):
            part.share(code)
    with pytest.raises(ScenarioError, match="needs hidden expressions"):
        Correctness({"shop.py": {}})
