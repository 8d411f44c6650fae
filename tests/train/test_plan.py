"""What is refused, from Python, before a model is loaded or a folder made."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from agentgym import Trainer, TrainingConfig
from agentgym.errors import (
    MissingExtraError,
    SandboxUnavailableError,
    UnsupportedError,
    UsageError,
)
from agentgym.evaluate import evaluation
from agentgym.integrations.agent_import import reference_of
from agentgym.sandbox import Limits, SandboxConfig
from agentgym.scenarios.base import Scenario
from agentgym.train import loop


@pytest.fixture(autouse=True)
def no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse to load a model, in an empty folder."""

    def load(config: TrainingConfig) -> None:
        pytest.fail("a model is loaded")

    for module in (evaluation, loop):
        monkeypatch.setattr(module, "create_engine", load)
    monkeypatch.chdir(tmp_path)


def test_tasks_are_a_file() -> None:
    with pytest.raises(UsageError, match=r"tasks is a list.*Scenario.from_tools"):
        Trainer().train(agent="json:dumps", tasks=[{"instruction": "Go."}])  # type: ignore[arg-type]


def test_an_agent_is_found_in_its_module_and_not_in_a_script_that_uses_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = object()
    for name in ("__main__", "__mp_main__", "its_module"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    script, its_own = ModuleType("__main__"), ModuleType("its_module")
    for name, module in {
        "__main__": script,
        "__mp_main__": script,
        "its_module": its_own,
    }.items():
        module.__dict__.update(__file__=f"{module.__name__}.py", agent=agent)
        monkeypatch.setitem(sys.modules, name, module)
    assert reference_of(agent) == "its_module:agent"


def test_an_agent_that_is_not_there_is_refused() -> None:
    trainer = Trainer(TrainingConfig.create(agent="no_such_module:make"))
    for refused in (trainer.plan, trainer.train, trainer.evaluate):
        with pytest.raises(UsageError, match="No module named 'no_such_module'"):
            refused()


def test_a_program_is_trained_only_where_one_is_given() -> None:
    config = TrainingConfig.create(framework="command")
    with pytest.raises(UnsupportedError, match="no program was given: add --command"):
        Trainer(config).plan()


@pytest.mark.parametrize("episodes", [0, 5])
def test_a_budget_of_less_than_one_group_is_refused(episodes: int) -> None:
    with pytest.raises(UsageError, match=f"episodes = {episodes} is less than one"):
        Trainer().train("coding", framework="native", episodes=episodes)


def test_the_budget_is_of_whole_groups_and_never_exceeded() -> None:
    sizes = {"group_size": 8, "tasks_per_step": 1, "episodes": 10}
    config = TrainingConfig.create(scenario="coding", framework="native", **sizes)
    assert Trainer(config).plan().steps == 1


def test_all_missing_extras_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("langgraph", "wandb", "torch"):
        monkeypatch.setitem(sys.modules, module, None)
    config = TrainingConfig.create(tracker="wandb")
    with pytest.raises(MissingExtraError) as caught:
        Trainer(config).plan()
    assert "[langchain,wandb,local]" in str(caught.value)
    assert "Install them with" in str(caught.value)


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (SandboxConfig(rung="landlock-user", subprocesses=True), "cannot start others"),
        (SandboxConfig(limits=Limits(open_files=3)), "Too many open files"),
    ],
)
def test_a_sandbox_that_a_scenario_cannot_have_is_refused(
    monkeypatch: pytest.MonkeyPatch, wanted: SandboxConfig, why: str
) -> None:
    monkeypatch.setattr(Scenario, "sandbox_config", lambda _: wanted)
    trainer = Trainer(TrainingConfig.create())
    for refused in (trainer.plan, trainer.train, trainer.evaluate):
        with pytest.raises(SandboxUnavailableError, match=why):
            refused()
