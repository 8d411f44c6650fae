"""Packs: found by name and path, loaded from where they lie, refused with a reason."""

import json
import shutil
from pathlib import Path

import pytest

from agentgym import TrainingConfig
from agentgym.errors import ScenarioError, ScenarioNotFoundError, UsageError
from agentgym.scenarios.packs import shown_name
from agentgym.scenarios.registry import absolute_reference, get_scenario, scenario_cards
from agentgym.train.trained_agent import TrainedAgent
from agentgym.train.trainer import Trainer
from tests.train.agents import make_agent

METHODS = "system_prompt tools tasks create_environment calculate_reward"
PACK = f"""
from agentgym import Scenario
from .words import WORD

class Mine(Scenario):
    name = "mine"
    description: str = "Water the " "plants."
    difficulty = "beginner"
    estimated_time = "a minute"
    word = WORD

for method in {METHODS.split()}:
    setattr(Mine, method, None)
Mine.__abstractmethods__ = frozenset()
"""


@pytest.fixture
def pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make ./scenarios/mine and go there."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "scenarios" / "mine"
    folder.mkdir(parents=True)
    (folder / "scenario.py").write_text(PACK)
    (folder / "words.py").write_text("WORD = 'fern'\n")
    return folder


def test_found_by_name_and_by_every_kind_of_path(pack: Path) -> None:
    for reference in (
        "mine",
        "./scenarios/mine",
        "scenarios/mine/scenario.py",
        str(pack),
        str(pack / "scenario.py"),
    ):
        scenario = get_scenario(reference)
        assert scenario.name == "mine"
        assert vars(type(scenario))["word"] == "fern"


def test_a_file_of_any_name_is_a_pack(pack: Path) -> None:
    (pack / "scenario.py").rename(pack / "other.py")
    assert get_scenario("scenarios/mine/other.py").name == "mine"
    assert TrainingConfig.create(scenario=f"{pack}/other.py").scenario_name == "other"


def test_settings_keep_the_place_wherever_they_are_read(
    pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TrainingConfig.create(scenario=absolute_reference("mine"))
    monkeypatch.chdir("/")
    again = TrainingConfig.create(**config.model_dump(mode="json"))
    assert again.scenario == str(pack)
    assert again.scenario_name == "mine"
    assert get_scenario(again.scenario).name == "mine"


def test_lists_read_the_card_and_import_nothing(pack: Path) -> None:
    (pack / "words.py").write_text("raise SystemExit('imported')\n")
    broken = pack.parent / "broken"
    broken.mkdir()
    (broken / "scenario.py").write_text("def (\n")
    (pack.parent / "notes").mkdir()
    cards = {card.name: card for card in scenario_cards()}
    assert cards["mine"].description == "Water the plants."
    assert cards["mine"].estimated_time == "a minute"
    assert "syntax error, line 1" in cards["broken"].description
    assert "notes" not in cards


def test_flaws_and_places(pack: Path) -> None:
    with pytest.raises(ScenarioNotFoundError, match="Did you mean 'mine'"):
        get_scenario("mime")
    with pytest.raises(UsageError, match="no scenario pack at ./mine"):
        get_scenario("./mine")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import agentgym\nx = (\n", r"scenario.py, line 2: '\(' was never closed"),
        ("import surely_absent.deep\n", "pip install surely_absent$"),
        ("from words import WORD\n", "next to it: write `from .words import …`"),
        ("from .gone import x\n", "imports 'gone' from its own folder"),
        ("1 / 0\n", "raised ZeroDivisionError when it was imported"),
        ("x = 1\n", "holds no scenario: write a subclass"),
        (PACK + "\nclass Two(Mine):\n    pass\n", r"holds 2 scenarios \(Mine, Two\)"),
        (
            "import agentgym\nclass Half(agentgym.Scenario):\n    name = 'half'\n",
            "Half of .* lacks methods of Scenario: calculate_reward, create",
        ),
        (PACK.replace('"mine"', '"My pack"'), "has the name 'My pack'"),
        (PACK.replace('"mine"', '"coding"'), "name of a built-in scenario"),
        (PACK + "\nMine.__init__ = lambda self, x: None\n", "made without arguments: "),
        (
            "from agentgym import tool\n@tool\ndef water(plant):\n    'Water it.'\n",
            "'plant' of tool 'water' has no type annotation",
        ),
    ],
)
def test_broken_packs_say_what_is_wrong(pack: Path, source: str, message: str) -> None:
    (pack / "scenario.py").write_text(source)
    with pytest.raises(ScenarioError, match=message):
        get_scenario("mine")


def test_requirements_are_named_if_there_are_some(pack: Path) -> None:
    (pack / "scenario.py").write_text("import surely_absent\n")
    (pack / "requirements.txt").write_text("surely-absent\n")
    with pytest.raises(ScenarioError, match=f"pip install -r {pack}/requirements.txt"):
        get_scenario("mine")


def test_names_of_built_in_scenarios_are_refused(pack: Path) -> None:
    pack.rename(pack.parent / "coding")
    with pytest.raises(ScenarioError, match="Rename its folder"):
        get_scenario("coding")
    with pytest.raises(ScenarioError, match="Rename its folder"):
        Trainer(TrainingConfig.create(scenario="coding")).plan()
    refused = [card for card in scenario_cards() if "Refused" in card.description]
    assert [card.name for card in refused] == ["coding (scenarios/coding)"]
    assert json.dumps(scenario_cards())


def test_an_agent_outlives_its_pack(pack: Path, tmp_path: Path) -> None:
    config = TrainingConfig.create(scenario=str(pack), framework="native")
    about = {"scenario": "mine", "tools": (), "config": config.model_dump(mode="json")}
    made = make_agent(tmp_path / "agent", 0.5, 0.9, **about)
    agent = TrainedAgent.load(made.path)
    assert get_scenario(agent.scenario).name == "mine"
    shutil.rmtree(pack)
    agent = TrainedAgent.load(made.path)
    server = "http://127.0.0.1:1/v1"
    with pytest.raises(UsageError, match=r"no scenario pack at .*to_langchain\(tools="):
        agent.to_langchain(base_url=server)
    agent.to_langchain(tools=[], base_url=server)


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        (
            "/a/tasks.jsonl?tools=%40desk%3Aagent&folder=%2Fa",
            "tasks.jsonl (desk:agent)",
        ),
        ("/a/tasks.jsonl?answers=stub", "tasks.jsonl"),
        ("/a/scenarios/heating", "heating"),
        ("bfcl?categories=live", "bfcl"),
        ("coding", "coding"),
    ],
)
def test_a_scenario_is_shown_by_a_short_name(reference: str, name: str) -> None:
    assert shown_name(reference) == name
