"""What others add: adapters and engines, by entry point and by contract."""

import inspect
import sys
from pathlib import Path
from typing import Any

import pytest

from agentgym import Trainer, TrainingConfig
from agentgym.engines.registry import check_engine
from agentgym.errors import NotFoundError, RolloutError, UnsupportedError, UsageError
from agentgym.train.result import TrainingResult

ENTRY_POINTS = """
[agentgym.frameworks]
toy = tests.toys:ToyAdapter
unfinished = tests.toys:Unfinished
wrong = tests.toys:WrongAdapter
gone = tests.toys:Gone

[agentgym.engines]
toy = tests.toys:ToyEngines
served = tests.toys:ServedToyEngines
other = tests.toys:ToyAdapter
"""
SCENARIO = '''
import random

from agentgym import Environment, Reward, Scenario, Task, tool
from agentgym.core.tools import tool_specs


class Nothing(Environment):
    @tool
    def look(self) -> str:
        """Look around."""
        return "nothing"


class Luck(Scenario):
    """Attempts at a task differ, whatever the policy does."""

    name = "luck"
    description = "Be lucky."
    difficulty = "beginner"
    estimated_time = "seconds"

    def system_prompt(self):
        return "You look."

    def tools(self):
        return tool_specs(Nothing)

    def tasks(self, split, seed, count):
        about = {"split": split, "seed": seed, "family": "look", "level": 1}
        names = [f"{split}-{seed}-{n}" for n in range(count)]
        return [Task(id=name, instruction="Look.", **about) for name in names]

    def create_environment(self, task):
        return Nothing()

    def calculate_reward(self, task, environment, trajectory):
        lucky = trajectory.rollout_id.endswith("0")
        return Reward(float(lucky), lucky)

    def define_trainable_components(self):
        return {"tool_selection": True, "output_generation": True}
'''


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the toys as a package of somebody else's."""
    folder = tmp_path / "toys-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1.0")
    (folder / "entry_points.txt").write_text(ENTRY_POINTS)
    (tmp_path / "luck").mkdir()
    (tmp_path / "luck" / "scenario.py").write_text(SCENARIO)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])


def train(folder: Path, **settings: Any) -> TrainingResult:
    small = {"episodes": 8, "group_size": 2, "tasks_per_step": 2, "eval_samples": 1}
    few = {"eval_tasks": 2, "test_tasks": 2, "tracker": "none", "yes": True}
    given = {"scenario": str(folder / "luck"), "framework": "toy", "output": folder}
    config = TrainingConfig.create(**(small | few | given | settings))
    return Trainer(config).train()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["toy", "served"])
def test_a_toy_adapter_trains_with_a_toy_engine(tmp_path: Path, engine: str) -> None:
    result = train(tmp_path, engine=engine)
    assert (result.steps, result.episodes) == (2, 8)
    assert (result.ledger.calls, result.ledger.trained) == (8, 8)
    assert result.trained.spec.framework == "toy"


def test_toys_and_their_training_are_short() -> None:
    toys = (Path(__file__).parent / "toys.py").read_text()
    lines = toys[toys.index("ANSWER =") : toys.index("class Unfinished")].splitlines()
    for function in (train, test_a_toy_adapter_trains_with_a_toy_engine):
        lines += inspect.getsource(function).splitlines()
    assert 60 < len(lines) < 120


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"framework": "toi"}, "No framework is named 'toi'. Did you mean 'toy'"),
        ({"engine": "serve"}, "No engine is named 'serve'. Did you mean 'served'"),
    ],
)
def test_a_name_that_nothing_has(
    tmp_path: Path, settings: dict[str, str], told: str
) -> None:
    with pytest.raises(NotFoundError, match=told):
        train(tmp_path, **settings)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"framework": "unfinished"}, "lacks check.self. -> None: Check that the"),
        ({"framework": "gone"}, "'gone' cannot be loaded from tests.toys:Gone"),
        ({"engine": "other"}, "'other' is not a subclass of agentgym's EngineFactory"),
    ],
)
def test_a_broken_contract_says_which_method_and_what_it_must_do(
    tmp_path: Path, settings: dict[str, str], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        train(tmp_path, **settings)


def test_a_broken_engine_of_another_package_stops_no_other_run() -> None:
    local = TrainingConfig.create(engine="local")
    assert check_engine(local).device
    with pytest.raises(UnsupportedError, match="of --engine verl, and this run has"):
        check_engine(local.replaced(**{"verl.nodes": 2}))


@pytest.mark.slow
def test_a_method_that_returns_something_else_says_what_it_must_return(
    tmp_path: Path,
) -> None:
    told = "create_environment.. of the framework 'wrong' must return an AgentLoop, not"
    with pytest.raises(RolloutError, match=told):
        train(tmp_path, framework="wrong", engine="toy")
