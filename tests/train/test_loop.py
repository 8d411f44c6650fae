"""The training loop: when it ends, and what is left when the user ends it."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agentgym import Trainer, TrainingConfig
from agentgym.engines.scripted import Reply
from agentgym.errors import ScenarioError, TrainingFailedError, TrainingInterrupted
from agentgym.evaluate import events
from agentgym.train import loop
from agentgym.train.result import TrainingResult
from agentgym.train.run_folder import RunFolder
from agentgym.train.stopping import ENDS
from agentgym.train.trained_agent import TrainedAgent
from tests.observers import Seen
from tests.scripted_engine import ScriptedEngine

SCENARIO = '''
from agentgym import Reward
from tests.made_packs import Looking


class Decided(Looking):
    """Whether a validation task is solved is known beforehand."""

    name = "decided"

    def about(self, split, number):
        return {"goal": {"solved": split != "train" and number < SOLVED}}

    def calculate_reward(self, task, environment, trajectory):
        lucky = task.split == "train" and trajectory.rollout_id.endswith("1")
        solved, step = task.goal["solved"], trajectory.rollout_id[1:6]
        calls = not step.isdigit() or int(step) < SILENT
        return Reward(float(solved or lucky), solved, right_tool=float(calls))

    def success_criteria(self):
        return {"success_rate": 0.9}
'''


@pytest.fixture(autouse=True)
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a script answer: the tasks, not the policy, decide how a run goes."""
    monkeypatch.setenv("AGENTGYM_HOME", str(tmp_path / "home"))

    def create(config: TrainingConfig) -> ScriptedEngine:
        return ScriptedEngine(lambda _: Reply("Done."))

    monkeypatch.setattr(loop, "create_engine", create)


def told(seen: Seen) -> list[str]:
    """Return what was told of the time left, and when."""
    kinds = events.BaselineMeasured | events.TimeLeft | events.StepReport
    return [type(event).__name__ for event in seen.of(kinds)]


def trainer(
    folder: Path,
    solved: int,
    tasks: int = 4,
    progress: events.Observer = events.silent,
    silent: int = 100,
    **settings: Any,
) -> Trainer:
    """Return who trains at most four steps, with so many validation tasks.

    From step ``silent`` on, the policy calls none of the right tools.
    """
    pack = folder / "decided"
    pack.mkdir(exist_ok=True, parents=True)
    text = SCENARIO.replace("SOLVED", str(solved)).replace("SILENT", str(silent))
    (pack / "scenario.py").write_text(text)
    given: dict[str, Any] = {
        "scenario": str(pack),
        "framework": "native",
        "episodes": 16,
        "group_size": 2,
        "tasks_per_step": 2,
        "eval_every": 1,
        "eval_tasks": tasks,
        "test_tasks": 1,
        "eval_samples": 1,
        "tracker": "none",
        "yes": True,
        "name": "run",
        "output": folder / "runs",
    }
    config = TrainingConfig.create(**{**given, **settings})
    return Trainer(config, progress=progress)


def train(folder: Path, solved: int, tasks: int = 4) -> TrainingResult:
    return trainer(folder, solved, tasks).train()


@pytest.mark.slow
def test_dapo_replaces_groups_of_equal_rewards_within_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first group of each step has no signal, so a third one is drawn."""
    alike = 'endswith("1") and "-t000-" not in trajectory.rollout_id'
    text = SCENARIO.replace('endswith("1")', alike)
    monkeypatch.setattr(sys.modules[__name__], "SCENARIO", text)
    given: Any = {"early_stop": False, "eval_every": 99, "task_choice": "uniform"}
    groups = {}
    for algorithm in ("dapo", "rloo"):
        made = trainer(tmp_path / algorithm, 4, algorithm=algorithm, **given).train()
        assert made.episodes == 16
        lines = (made.artifacts.run / "metrics.jsonl").read_text().splitlines()
        steps = list(map(json.loads, lines))
        assert [step["skipped_groups"] for step in steps] == [1] * made.steps
        groups[algorithm] = [step["groups"] for step in steps]
    assert groups == {"dapo": [3, 3, 2], "rloo": [2, 2, 2, 2]}


@pytest.mark.slow
def test_a_report_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    run, warnings = tmp_path / "runs" / "run", list[str]()

    def take_its_place(event: events.Event) -> None:
        if isinstance(event, events.Ended):
            (run / "report.html").mkdir()
        elif isinstance(event, events.Warned):
            warnings.append(event.text)

    result = trainer(tmp_path, 8, progress=take_its_place).train()
    assert TrainingResult.load(run) == result
    [said] = [line for line in warnings if "report" in line]
    assert f"`agentgym runs show {run} --html FILE` writes it" in said


@pytest.mark.slow
def test_a_goal_that_later_tasks_do_not_bear_out_ends_nothing(tmp_path: Path) -> None:
    """All of the first validation's tasks are solved, and none of the others."""
    result = train(tmp_path, solved=16, tasks=16)

    assert (result.stopped, result.steps) == ("budget spent", 4)
    assert [share for _, share in result.validations] == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.slow
@pytest.mark.parametrize(("every", "measured"), [(3, 3), (5, 4)])
def test_the_last_step_is_validated_unless_one_near_it_was(
    tmp_path: Path, every: int, measured: int
) -> None:
    result = trainer(tmp_path, 999, eval_every=every, early_stop=False).train()

    assert [step for step, _ in result.validations] == [measured]
    assert (result.steps, result.weights_step) == (4, measured)


@pytest.mark.slow
def test_the_goal_of_the_user_replaces_that_of_the_scenario(tmp_path: Path) -> None:
    given = trainer(tmp_path, 999, 16, goal={"pass_1": 0.6})
    result = given.train()

    assert (result.stopped, result.steps) == ("the goal is reached", 1)
    assert result.criteria == {"pass_1": 0.6}


@pytest.mark.slow
def test_an_interrupted_run_leaves_its_best_weights_as_a_version(
    tmp_path: Path,
) -> None:
    """The first validation is the best; Ctrl-C comes in the third step."""
    stop = Seen(stop_at="rollouts", turn=3)
    with pytest.raises(TrainingInterrupted, match="after step 2") as stopped:
        trainer(tmp_path, 4, progress=stop, name="kept").train()

    assert "of step 1 (validation 100 %), are kept@1. kept@1 is not" in str(
        stopped.value
    )
    agent = TrainedAgent.load("kept@1")
    assert (agent.model_path / "scripted.json").read_text().strip() == "1"
    assert not agent.provenance.is_measured

    result = Trainer().train(resume=tmp_path / "runs" / "kept")
    assert result.saved.name == "kept@2"


@pytest.mark.slow
def test_no_finished_step_is_lost(tmp_path: Path) -> None:
    """Ctrl-C in the third step's rollouts."""
    seldom = {"eval_every": 4}
    trainer(tmp_path / "whole", 0, **seldom).train()
    run = RunFolder(tmp_path / "runs" / "run")
    stop = Seen(stop_at="rollouts", turn=3)
    with pytest.raises(TrainingInterrupted, match="after step 2"):
        trainer(tmp_path, 0, progress=stop, **seldom).train()
    assert [path.name for path in run.checkpoints()][-1] == "step-000002"

    Trainer().train(resume=run.path)

    assert [line["step"] for line in run.metrics()] == [1, 2, 3, 4]
    whole = RunFolder(tmp_path / "whole" / "runs" / "run").load_state()
    state = run.load_state()
    assert whole is not None
    assert state is not None
    assert state[0].stream == whole[0].stream
    assert state[0].episodes == whole[0].episodes == 16


@pytest.mark.slow
def test_training_ends_with_the_step_that_shows_the_goal_to_hold(
    tmp_path: Path,
) -> None:
    """45 successes in a row show 90 %: three validations of 16 new tasks."""
    progress = Seen(stop_at="after")
    with pytest.raises(TrainingInterrupted, match="after step 3"):
        trainer(tmp_path, 999, 16, progress=progress).train()
    assert [event.step for event in progress.of(events.Validated)] == [1, 2, 3]

    again = Seen()
    result = Trainer(progress=again).train(resume=tmp_path / "runs" / "run")

    assert (result.stopped, result.steps) == ("the goal is reached", 3)
    assert result.weights_step == 3
    assert again.of(events.Validated) == [], "its checkpoint was made before the end"


@pytest.mark.slow
def test_time_is_told_once_rollouts_were_timed_and_ends_with_the_last_measurement(
    tmp_path: Path,
) -> None:
    progress = Seen()
    trainer(tmp_path, 0, progress=progress).train()

    assert told(progress) == ["BaselineMeasured", "TimeLeft", *["StepReport"] * 4]
    [forecast] = progress.of(events.TimeLeft)
    assert forecast.seconds > 0
    assert (
        progress.of(events.StepReport)[-1].seconds_left > 0
    )  # the final test is to come


def shorten(folder: Path, tasks: str) -> None:
    """Let the scenario's ``tasks`` return something else than what it makes."""
    scenario = folder / "decided" / "scenario.py"
    more = f"""
    def tasks(self, split, seed, count):
        made = super().tasks(split, seed, count)
        return {tasks}
"""
    scenario.write_text(f"{scenario.read_text()}{more}")


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_a_scenario_without_tasks_is_refused_before_a_model_is_loaded(
    tmp_path: Path, split: str
) -> None:
    empty = trainer(tmp_path, 0)
    shorten(tmp_path, f"[] if split == {split!r} else made")

    with pytest.raises(ScenarioError, match="decided is empty"):
        empty.plan()


@pytest.mark.slow
def test_the_best_validated_weights_are_kept(tmp_path: Path) -> None:
    """Validation says the same of every step here, so the first is the best."""
    result = train(tmp_path, solved=3)

    assert (result.stopped, result.steps, result.weights_step) == ("budget spent", 4, 1)
    run = RunFolder(tmp_path / "runs" / "run")
    kept = [path.name for path in run.checkpoints()]
    assert kept == ["step-000001", "step-000003", "step-000004"]
    exported = result.trained.model_path / "scripted.json"
    assert exported.read_text().strip() == "1"
    assert result.trained.provenance.steps == 1


@pytest.mark.slow
def test_a_run_ends_when_the_policy_stops_calling_the_right_tools(
    tmp_path: Path,
) -> None:
    result = trainer(tmp_path, 3, silent=4, episodes=64, eval_every=2).train()

    assert result.stopped == ENDS["collapsed"]
    assert (result.steps, result.weights_step) == (6, 2)
    with pytest.raises(TrainingFailedError, match="the agent is as it was before"):
        trainer(tmp_path / "2", 3, silent=4, episodes=64, eval_every=100).train()


@pytest.mark.slow
def test_a_hopeless_baseline_starts_no_training(tmp_path: Path) -> None:
    """What was measured is not lost: the run goes on from there if the user says so."""
    nobody = Seen(False)
    with pytest.raises(TrainingFailedError, match=r"Not one of 16 attempts .* --yes`"):
        trainer(tmp_path, 0, progress=nobody, yes=False, test_tasks=16).train()
    assert len(nobody.facts) == 2
    run = RunFolder(tmp_path / "runs" / "run")
    assert run.metrics() == []
    assert not (tmp_path / "home").exists()

    asked = Seen(False)
    result = Trainer(progress=asked).train(resume=run.path, yes=True)

    assert result.steps == 4
    assert asked.facts == []
    assert asked.of(events.Warned)[0].text.startswith("Not one of 16 attempts")


@pytest.mark.slow
def test_a_run_without_a_trained_call_has_failed_and_saves_nothing(
    tmp_path: Path,
) -> None:
    alike = trainer(tmp_path, 0)
    scenario = tmp_path / "decided" / "scenario.py"
    scenario.write_text(scenario.read_text().replace('endswith("1")', 'endswith("x")'))

    with pytest.raises(TrainingFailedError, match="None of 16 model calls was trained"):
        alike.train()

    assert not (tmp_path / "home").exists()
    assert not (tmp_path / "runs" / "run" / "agent").exists()
    assert RunFolder(tmp_path / "runs" / "run").record()["status"] == "failed"


@pytest.mark.slow
def test_a_validation_that_was_interrupted_is_made_when_the_run_goes_on(
    tmp_path: Path,
) -> None:
    stop = Seen(stop_at="validation", turn=2)
    with pytest.raises(TrainingInterrupted, match="after step 2"):
        trainer(tmp_path, 999, 16, progress=stop).train()
    run = RunFolder(tmp_path / "runs" / "run")

    result = Trainer().train(resume=run.path)

    assert (result.stopped, result.steps) == ("the goal is reached", 3)
    assert [line["step"] for line in run.metrics()] == [1, 2, 3]
