"""The registry: what lists show is what the classes say."""

from pathlib import Path
from pkgutil import resolve_name

import pytest

from agentgym.errors import ScenarioError
from agentgym.scenarios.registry import BUILT_IN, get_scenario, scenario_cards


@pytest.mark.parametrize("name", BUILT_IN)
def test_card_equals_the_class(name: str) -> None:
    card = BUILT_IN[name]
    scenario = resolve_name(card.target)
    assert card.name == scenario.name
    assert card.description == scenario.description
    assert card.difficulty == scenario.difficulty
    assert card.estimated_time == scenario.estimated_time


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package that declares three scenarios, only one of which is one."""
    info = tmp_path / "third_party-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party\n")
    (info / "entry_points.txt").write_text(
        "[agentgym.scenarios]\nmine = third_party:Mine\n"
        "odd = third_party:Odd\nbroken = third_party:Gone\n"
    )
    methods = "system_prompt tools tasks create_environment calculate_reward"
    (tmp_path / "third_party.py").write_text(
        "from agentgym import Scenario\n"
        "class Mine(Scenario):\n"
        "    name = 'mine'\n"
        f"for name in {methods.split()}:\n"
        "    setattr(Mine, name, None)\n"
        "class Odd: pass\n"
        "Mine.__abstractmethods__ = frozenset()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("installed")
def test_installed_packages_bring_scenarios() -> None:
    cards = {card.name: card for card in scenario_cards()}
    assert cards["mine"].description == "From third-party."
    assert get_scenario("mine").name == "mine"


@pytest.mark.usefixtures("installed")
def test_entry_point_that_is_no_scenario_is_refused() -> None:
    with pytest.raises(ScenarioError, match="'odd' is not a subclass of agentgym"):
        get_scenario("odd")


@pytest.mark.usefixtures("installed")
def test_entry_point_that_cannot_be_loaded_says_why() -> None:
    with pytest.raises(ScenarioError, match="third_party:Gone.*no attribute 'Gone'"):
        get_scenario("broken")
