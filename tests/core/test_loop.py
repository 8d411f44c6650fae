"""The training loop: when it ends."""

from pathlib import Path

import pytest

from agentgym import Trainer, TrainingConfig
from agentgym.core.result import TrainingResult

SCENARIO = '''
from agentgym import Environment, Reward, Scenario, Split, Task, tool
from agentgym.core.tools import tool_specs


class Nothing(Environment):
    @tool
    def look(self) -> str:
        """Look around."""
        return "nothing"


class Decided(Scenario):
    """Whether a validation task is solved is known beforehand."""

    name = "decided"
    description = "Tasks that solve themselves."
    difficulty = "beginner"
    estimated_time = "seconds"

    def system_prompt(self) -> str:
        return "You look."

    def tools(self):
        return tool_specs(Nothing)

    def tasks(self, split, seed, count):
        return [
            Task(
                id=f"{split}-{seed}-{number}",
                split=split,
                seed=seed,
                family="look",
                level=1,
                instruction="Look.",
                goal={"solved": number < SOLVED},
            )
            for number in range(count)
        ]

    def create_environment(self, task):
        return Nothing()

    def calculate_reward(self, task, environment, trajectory):
        return Reward(float(task.goal["solved"]), task.goal["solved"])

    def success_criteria(self):
        return {"success_rate": 0.9}
'''


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTGYM_HOME", str(tmp_path / "home"))


def train(folder: Path, solved: int, tasks: int = 4) -> TrainingResult:
    """Train at most four steps, with so many validation tasks after each."""
    pack = folder / "decided"
    pack.mkdir()
    text = SCENARIO.replace("SOLVED", str(solved))
    (pack / "scenario.py").write_text(text)
    config = TrainingConfig.create(
        scenario=str(pack),
        framework="native",
        episodes=16,
        group_size=2,
        tasks_per_step=2,
        eval_every=1,
        eval_tasks=tasks,
        test_tasks=1,
        eval_samples=1,
        tracker="none",
        output=folder / "runs",
    )
    return Trainer(config).train()


@pytest.mark.parametrize(("tasks", "solved"), [(4, 8), (10, 18)])
def test_training_ends_once_the_goal_holds_with_other_tasks_too(
    tmp_path: Path, tasks: int, solved: int
) -> None:
    """All of them count together: 8 of the 10 other ones are enough."""
    result = train(tmp_path, solved, tasks)

    assert (result.stopped, result.steps) == ("success criteria reached", 1)


@pytest.mark.parametrize(("tasks", "solved"), [(4, 4), (10, 17)])
def test_a_goal_that_other_tasks_do_not_bear_out_ends_nothing(
    tmp_path: Path, tasks: int, solved: int
) -> None:
    result = train(tmp_path, solved, tasks)

    assert (result.stopped, result.steps) == ("budget spent", 4)


def test_a_goal_that_is_not_reached_ends_nothing(tmp_path: Path) -> None:
    result = train(tmp_path, solved=3)

    assert (result.stopped, result.steps) == ("budget spent", 4)
