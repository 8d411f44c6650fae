"""The warm start: what is imitated, when, and what is left if the user ends it."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentgym import Trainer, TrainingConfig
from agentgym.core.policy import ChatRequest
from agentgym.engines.base import Engine
from agentgym.engines.scripted import Reply
from agentgym.errors import (
    ScenarioError,
    TrainingFailedError,
    TrainingInterrupted,
    UnsupportedError,
    UsageError,
)
from agentgym.evaluate import events
from agentgym.plugins.view.report import render_report
from agentgym.train import loop, warm_start
from agentgym.train.result import TrainingResult
from agentgym.train.run_folder import RunFolder
from tests.observers import Seen
from tests.scripted_engine import ScriptedEngine, ScriptedImitation
from tests.toys import ToyEngines

SCENARIO = '''
from agentgym import Environment, Reward, tool
from agentgym.core.needs import NeededCall
from agentgym.core.tools import tool_specs
from tests.made_packs import Looking


class Switches(Environment):
    def __init__(self):
        self.on = []

    @tool
    def turn_on(self, lamp: str) -> str:
        """Turn a lamp on."""
        self.on.append(lamp)
        return f"{lamp} is on."


class Lamps(Looking):
    """Two lamps a task; the plans of some tasks name another."""

    name = "lamps"
    reward_range = (0.0, 1.0)

    def system_prompt(self):
        return "You turn on lamps."

    def tools(self):
        return tool_specs(Switches)

    def tasks(self, split, seed, count):
        return super().tasks(split, seed, min(count, MOST))

    def about(self, split, number):
        return {
            "instruction": f"Turn on a{number} and b{number}.",
            "goal": {"lamps": [f"a{number}", f"b{number}"], "number": number},
        }

    def create_environment(self, task):
        return Switches()

    def calculate_reward(self, task, environment, trajectory):
        solved = environment.on == task.goal["lamps"]
        return Reward(float(solved), solved)

    def needed_calls(self, task):
        lamps = task.goal["lamps"]
        if (task.goal["number"] + 1) % BROKEN == 0:
            lamps = ["none"]
        if (task.goal["number"] + 1) % KNOWN:
            return None
        return PLANS and [NeededCall("turn_on", {"lamp": lamp}) for lamp in lamps]
'''
NEVER = 10**6


class Learner(ScriptedEngine):
    """Once it has imitated, it turns on the first lamp that it was shown nothing of."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.weights_loaded = False

    def _answer(self, request: ChatRequest) -> Reply:
        if not request.tools:
            return Reply("Both are on.")
        words = str(request.messages[1]["content"]).strip(".").split()
        done = sum(message["role"] == "tool" for message in request.messages)
        if not (self.imitated or self.weights_loaded) or done == 2:
            return Reply("Done.")
        return Reply(calls=[("turn_on", {"lamp": words[2 + 2 * done]})])

    def load_checkpoint(self, folder: Path) -> None:
        super().load_checkpoint(folder)
        self.weights_loaded = (folder / "imitated").exists()

    def save_checkpoint(self, folder: Path) -> None:
        super().save_checkpoint(folder)
        if self.imitated or self.weights_loaded:
            (folder / "imitated").touch()


@pytest.fixture(autouse=True)
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Learner]:
    """Let a script learn, of few tasks; every engine that was made is noted."""
    monkeypatch.setenv("AGENTGYM_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(warm_start, "TASKS", 10)
    monkeypatch.setattr(warm_start, "TASKS_PER_UPDATE", 4)
    monkeypatch.setattr(warm_start, "LEAST_UPDATES", 2)
    made: list[Learner] = []

    def create(config: TrainingConfig) -> Engine:
        made.append(Learner())
        return made[-1]

    monkeypatch.setattr(loop, "create_engine", create)
    return made


def lamps(
    folder: Path,
    *,
    plans: bool = True,
    broken: int = NEVER,
    known: int = 1,
    most: int = NEVER,
) -> Path:
    """Write the pack, with at most so many tasks of a split.

    Every ``broken``-th plan does not solve its task; every ``known``-th is told.
    """
    pack = folder / "lamps"
    pack.mkdir(exist_ok=True)
    text = SCENARIO.replace(" % BROKEN", f" % {broken}")
    text = text.replace("KNOWN", str(known)).replace("MOST", str(most))
    (pack / "scenario.py").write_text(text.replace("PLANS and", f"{plans or None} and"))
    return pack


def trainer(
    folder: Path,
    *,
    plans: bool = True,
    broken: int = NEVER,
    known: int = 1,
    progress: events.Observer = events.silent,
    **settings: Any,
) -> Trainer:
    pack = lamps(folder, plans=plans, broken=broken, known=known)
    given: dict[str, Any] = {
        "scenario": str(pack),
        "framework": "native",
        "episodes": 4,
        "group_size": 2,
        "tasks_per_step": 2,
        "eval_every": 1,
        "eval_tasks": 4,
        "test_tasks": 16,
        "eval_samples": 1,
        "tracker": "none",
        "name": "run",
        "output": folder / "runs",
        "warm_start": True,
        "task_choice": "uniform",  # groups without a signal are not replaced
    }
    return Trainer(TrainingConfig.create(**{**given, **settings}), progress=progress)


@pytest.mark.slow
def test_the_known_calls_are_imitated_as_the_agent_is_asked_for_them(
    tmp_path: Path, engines: list[Learner]
) -> None:
    result = trainer(tmp_path).train()

    batches = engines[0].imitated
    assert len(batches) == 3  # 10 tasks, 4 at a time
    first = [s for batch in batches[:3] for s in batch.sequences]
    answers = [_imitated(sequence.ids, sequence.trained) for sequence in first]
    calls = [text for text in answers if "turn_on" in text]
    assert len(calls) == 20
    assert sum(text == "Done." for text in answers) == 10
    assert '{"name": "turn_on", "arguments": {"lamp": "a0"}}' in "".join(calls)
    last = max(first, key=lambda s: len(s.ids))
    prompt = bytes(last.ids[: last.trained[0].position]).decode()
    assert "You turn on lamps." in prompt
    assert "is on." in prompt  # the result of the call before
    assert result.imitated is not None
    assert (result.imitated.tasks, result.imitated.imitated) == (10, 10)


def _imitated(ids: Sequence[int], trained: Sequence[Any]) -> str:
    return bytes(ids[token.position] for token in trained).decode()


@pytest.mark.slow
def test_what_it_reached_is_measured_between_before_and_after(tmp_path: Path) -> None:
    watching = Seen()

    result = trainer(tmp_path, progress=watching).train()

    assert result.warm_start is not None
    assert result.baseline.pass_1.value == 0.0
    assert result.warm_start.pass_1.value == 1.0
    begun = ["before", "forecast", "plans", "imitation", "warmed", "validation"]
    seen = [
        event.name if isinstance(event, events.PhaseStarted) else "forecast"
        for event in watching.of(events.PhaseStarted | events.TimeLeft)
    ]
    assert seen[: len(begun)] == begun
    assert "after" not in watching.phases, "these weights were measured already"
    assert (result.metrics, result.weights_step) == (result.warm_start, 0)
    assert result.gain_words[0].startswith("Training added nothing")
    report = " ".join(render_report(result).split())
    assert "| before | warm start | after |" in report
    assert "those of the warm start: no later ones did better on validation" in report
    assert TrainingResult.load(tmp_path / "runs" / "run") == result


@pytest.mark.slow
def test_one_without_episodes_ends_after_it_and_goes_on_when_they_are_raised(
    tmp_path: Path,
) -> None:
    watching = Seen()

    alone = trainer(tmp_path, progress=watching, episodes=0, early_stop=False).train()

    assert (alone.steps, alone.episodes) == (0, 0)
    assert alone.metrics == alone.warm_start
    assert "after" not in watching.phases, "nothing has changed since it was measured"
    more = Trainer().train(resume=tmp_path / "runs" / "run", episodes=8, yes=True)
    assert (more.steps, more.episodes) == (2, 8)
    assert more.warm_start == alone.warm_start


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["plans", "imitation", "warmed", "validation"])
def test_an_interrupted_one_goes_on_where_it_was(
    tmp_path: Path, engines: list[Learner], phase: str
) -> None:
    with pytest.raises(TrainingInterrupted, match="after step 0"):
        trainer(tmp_path, progress=Seen(stop_at=phase)).train()
    again = Seen()

    result = Trainer(progress=again).train(resume=tmp_path / "runs" / "run")

    assert "before" not in again.phases
    imitated_before = phase in ("warmed", "validation")
    assert ("imitation" in again.phases) is not imitated_before
    assert bool(engines[1].imitated) is not imitated_before
    assert ("warmed" in again.phases) is (phase != "validation")
    assert result.warm_start is not None
    assert result.warm_start.pass_1.value == 1.0


@pytest.mark.slow
def test_no_validation_comes_after_it_where_no_time_is_left_to_train(
    tmp_path: Path, engines: list[Learner]
) -> None:
    with pytest.raises(TrainingInterrupted):
        trainer(tmp_path, progress=Seen(stop_at="warmed"), time="1h").train()
    again = Seen()

    result = Trainer(progress=again).train(
        resume=tmp_path / "runs" / "run", time="0.1s"
    )

    assert again.phases == ["warmed"]
    assert (result.stopped, result.steps) == ("time spent", 0)
    assert result.metrics.pass_1.value == 1.0


@pytest.mark.slow
def test_tasks_without_a_plan_are_no_part_of_it(
    tmp_path: Path, engines: list[Learner]
) -> None:
    """To imitate "Done." in their place would teach to do nothing."""
    result = trainer(tmp_path, known=3).train()

    assert result.imitated is not None
    assert (result.imitated.tasks, result.imitated.failed) == (10, {})
    sequences = [s for batch in engines[0].imitated for s in batch.sequences]
    assert all(b"turn_on" in bytes(s.ids) for s in sequences)


@pytest.mark.slow
def test_it_ends_with_its_time_but_not_before_the_first_update(
    tmp_path: Path, engines: list[Learner], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = "agentgym.train.time_limit.RunClock.warm_start_spent"
    monkeypatch.setattr(clock, lambda *_: lambda: 1.0)
    result = trainer(tmp_path).train()

    assert result.imitated is not None
    assert result.imitated.updates == len(engines[0].imitated) == 1


@pytest.mark.slow
def test_plans_that_fail_are_counted_and_left_out(
    tmp_path: Path, engines: list[Learner]
) -> None:
    watching = Seen()

    result = trainer(tmp_path, broken=5, progress=watching).train()

    assert result.imitated is not None
    assert result.imitated.imitated == 8
    assert result.imitated.failed == {"goal not reached": 2}
    told = " ".join(watching.texts)
    assert "The needed calls of 2 of 10 training tasks do not solve them" in told
    shown = "".join(
        _imitated(s.ids, s.trained) for b in engines[0].imitated for s in b.sequences
    )
    assert "none" not in shown


def test_a_scenario_without_plans_is_refused_before_a_model_is_loaded(
    tmp_path: Path,
) -> None:
    with pytest.raises(ScenarioError, match=r"write needed_calls\(task\)"):
        trainer(tmp_path, plans=False).plan()


def test_an_engine_that_cannot_imitate_is_refused_before_a_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentgym.engines.registry._factory", lambda _: ToyEngines())

    with pytest.raises(UnsupportedError, match="cannot imitate calls"):
        trainer(tmp_path).plan()


@pytest.mark.slow
def test_a_weak_baseline_is_told_of_it(tmp_path: Path) -> None:
    watching = Seen()
    with pytest.raises(TrainingFailedError, match="--yes` or with --warm-start"):
        trainer(tmp_path, warm_start=False, progress=watching).train()
    assert any("--warm-start imitates" in text for text in watching.facts)

    resumed = Trainer(progress=Seen())
    result = resumed.train(resume=tmp_path / "runs" / "run", warm_start=True)

    assert result.warm_start is not None


@pytest.mark.slow
def test_a_user_who_is_asked_decides(tmp_path: Path) -> None:
    result = trainer(tmp_path, warm_start=False, progress=Seen(True)).train()

    assert result.warm_start is not None
    assert result.config["warm_start"] is True
    run = RunFolder(tmp_path / "runs" / "run")
    assert run.config().warm_start


@pytest.mark.slow
@pytest.mark.parametrize(
    ("knows_from", "eval_every", "kept"),
    [(2, 1, 3), (4, 3, 4)],  # the best are those of two good validations in a row
    ids=["validated", "newest"],
)
def test_training_that_is_better_beyond_chance_replaces_its_weights(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    knows_from: int,
    eval_every: int,
    kept: int,
) -> None:
    """Also if it was only better after the last validation."""

    class Late(Learner):
        def _answer(self, request: ChatRequest) -> Reply:
            knows = self.step >= knows_from
            return super()._answer(request) if knows else Reply("Done.")

    monkeypatch.setattr(loop, "create_engine", lambda _: Late())
    late = {"early_stop": False, "yes": True, "episodes": 16, "eval_tasks": 12}

    result = trainer(tmp_path, eval_every=eval_every, **late).train()

    assert result.warm_start is not None
    assert result.warm_start.pass_1.value == 0.0
    assert (result.steps, result.weights_step) == (4, kept)
    assert result.metrics.pass_1.value == 1.0


@pytest.mark.slow
def test_a_language_model_learns_where_to_answer_in_its_own_words(
    tmp_path: Path, engines: list[Learner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that learned calls alone would call until the agent stops it."""
    monkeypatch.setattr(warm_start, "is_small", lambda model: False)
    trainer(tmp_path, episodes=0).train()
    [engine] = engines
    taught = [_imitated(s.ids, s.trained) for b in engine.imitated for s in b.sequences]
    ends = [text for text in taught if "turn_on" not in text]
    calls = len(taught) - len(ends)
    assert calls == 2 * len(ends) > 0
    assert set(ends) == {"B"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("losses", "updates"),
    [([9, 8, 8, 8], 4), ([9, 8, 7, 6], 25), ([math.nan], 25)],
    ids=["no longer falls", "falls", "is not measured"],
)
def test_it_ends_where_plans_kept_apart_are_learned_no_better(
    tmp_path: Path,
    engines: list[Learner],
    monkeypatch: pytest.MonkeyPatch,
    losses: list[float],
    updates: int,
) -> None:
    left = [*losses, *(losses[-1] / n for n in range(2, 99))]
    monkeypatch.setattr(ScriptedImitation, "measure", lambda *_: left.pop(0))
    monkeypatch.setattr(warm_start, "TASKS", 110)
    monkeypatch.setattr(warm_start, "_LOOKS", 25)
    result = trainer(tmp_path, episodes=8).train()
    assert result.imitated is not None
    assert result.imitated.updates == updates
    assert result.imitated.imitated == min(99, 4 * updates)
    assert (result.imitated.held_out_loss is None) == math.isnan(losses[0])


def test_plans_of_which_most_fail_are_refused(
    tmp_path: Path, engines: list[Learner]
) -> None:
    with pytest.raises(
        ScenarioError, match=r"10 of 10 training tasks.*scenarios check"
    ):
        trainer(tmp_path, broken=1).train()

    assert not engines[0].imitated


@pytest.mark.slow
def test_a_run_that_has_trained_is_not_started_anew(tmp_path: Path) -> None:
    cold = {"warm_start": False, "yes": True, "episodes": 8}
    with pytest.raises(TrainingFailedError, match="No two attempts|was trained"):
        trainer(tmp_path, **cold).train()

    with pytest.raises(UsageError, match="comes before the first step"):
        Trainer().train(resume=tmp_path / "runs" / "run", warm_start=True)


@pytest.mark.slow
def test_what_is_better_on_the_validated_tasks_alone_replaces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best of many validations says little of tasks that were never measured."""

    class Lucky(Learner):
        def _answer(self, request: ChatRequest) -> Reply:
            lamp = str(request.messages[1]["content"]).split()[2]
            knows = self.step >= 2 and int(lamp[1:]) < 12
            return super()._answer(request) if knows else Reply("Done.")

    monkeypatch.setattr(loop, "create_engine", lambda _: Lucky())
    late = {"early_stop": False, "yes": True, "episodes": 16, "eval_tasks": 12}

    result = trainer(tmp_path, **late).train()

    assert (result.steps, result.weights_step) == (4, 0)
