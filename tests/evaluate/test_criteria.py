"""Criteria of scenarios: what they may ask for, and that success is part of it."""

import pytest

from agentgym import TrainingConfig
from agentgym.errors import ScenarioError
from agentgym.evaluate.check import check_scenario
from agentgym.evaluate.criteria import flaws
from agentgym.packs.coding.scenario import CodingScenario
from agentgym.scenarios.registry import get_scenario, scenario_names
from agentgym.train import plan
from tests.scenarios.data_sets import DATA_SETS


class Asking(CodingScenario):
    """A scenario that asks for something else."""

    asked: dict[str, float] = {}  # noqa: RUF012

    def success_criteria(self) -> dict[str, float]:
        return self.asked


def found(**asked: float) -> str:
    scenario = Asking()
    scenario.asked = asked
    try:
        return "; ".join(flaws(scenario))
    finally:
        scenario.close()


@pytest.mark.parametrize("name", [n for n in scenario_names() if n not in DATA_SETS])
def test_scenarios_that_come_along_ask_for_success(name: str) -> None:
    scenario = get_scenario(name)
    assert list(flaws(scenario)) == []
    scenario.close()


@pytest.mark.parametrize("success", ["success_rate", "pass_1", "pass_k"])
def test_success_is_enough(success: str) -> None:
    assert found(**{success: 0.5}) == ""


@pytest.mark.parametrize(
    "asked",
    [{}, {"tool_reliability": 0.95}, {"tool_reliability": 0.9, "success_rate": 0.0}],
    ids=str,
)
def test_reliability_alone_is_no_goal(asked: dict[str, float]) -> None:
    assert "asks for no task success" in found(**asked)
    assert "add 'success_rate': 0.9" in found(**asked)


@pytest.mark.parametrize("least", [95, -0.1, float("nan"), "much"])
def test_what_is_no_share_is_said(least: float) -> None:
    assert f"'success_rate': {least!r}, not a share from 0 to 1" in found(
        success_rate=least
    )


@pytest.mark.slow
def test_the_plan_and_the_check_refuse_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def reliable(self: CodingScenario) -> dict[str, float]:
        return {"tool_reliability": 0.95}

    monkeypatch.setattr(CodingScenario, "success_criteria", reliable)
    with pytest.raises(ScenarioError, match="asks for no task success"):
        plan.make_plan(TrainingConfig.create(scenario="coding", framework="native"))
    (card,) = [f for f in check_scenario("coding", tasks=8) if f.name == "card"]
    assert card.status == "fail"
    assert "asks for no task success" in card.why
