"""A budget in time: what is measured, and how many steps are done, fits into it."""

import asyncio
import re
import time
from dataclasses import replace
from functools import partial
from operator import mul
from pathlib import Path
from typing import Any

import pytest

from agentgym import Trainer
from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest, ChatResult
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.errors import (
    ConfigError,
    TrainingFailedError,
    TrainingInterrupted,
    UsageError,
)
from agentgym.evaluate import events
from agentgym.train import loop
from agentgym.train.run_folder import RunFolder
from agentgym.train.run_state import RunState
from agentgym.train.sampling import Sampling
from agentgym.train.time_limit import TimeBudget
from tests.observers import Seen
from tests.scripted_engine import ScriptedEngine
from tests.train.test_loop import scripted, trainer
from tests.ui.made_up import metrics

__all__ = ["scripted"]


def budget(**settings: Any) -> TimeBudget:
    two_sets = partial(mul, 2)
    return TimeBudget(TrainingConfig.create(**settings), two_sets, workers=2)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30m", 1800), ("1h30m", 5400), ("90s", 90), ("1.5h", 5400)]
)
def test_times_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert TrainingConfig.create(time=text).time == seconds
    assert TrainingConfig.create(time=seconds).time == seconds


@pytest.mark.parametrize("text", ["soon", "", "30 x", "0s", "-5m"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="time ="):
        TrainingConfig.create(time=text)


def test_held_out_tasks_come_first_and_then_attempts_at_each() -> None:
    short = budget(time="30m").fit(1800, 1.0)
    assert (short["test_tasks"], short["eval_samples"]) == (96, 1)
    long = budget(time="2h").fit(7200, 1.0)
    assert (long["test_tasks"], long["eval_samples"]) == (96, 4)
    slow = budget(time="30m", tasks_per_step=2).fit(1800, 10.0)
    assert (slow["test_tasks"], slow["eval_samples"]) == (13, 1)
    assert slow["eval_tasks"] == 8
    assert slow["eval_every"] > 5 - 1


def test_small_sets_leave_room_for_more_tasks_of_the_main_one() -> None:
    """In 540 s at a second a rollout, twice, there are 270: 230 and 4 sets of 10."""
    config = TrainingConfig.create(time="30m", test_tasks=300)
    given = TimeBudget(config, lambda count: count + 4 * min(count, 10), workers=2)
    fitted = given.fit(1800, 1.0)
    assert (fitted["test_tasks"], fitted["eval_samples"]) == (230, 1)
    after = TimeBudget(config.replaced(**fitted), given.held_out, workers=2)
    assert after.has_room(RunState(wall_seconds=1400), 130, measured=1.0)
    assert not after.has_room(RunState(wall_seconds=1400), 131, measured=1.0)


def test_a_small_tasks_file_is_not_called_larger_than_it_is() -> None:
    config = TrainingConfig.create(time="30m")
    given = TimeBudget(config, lambda count: min(count, 8), workers=2)
    fitted = given.fit(1800, 0.1)
    assert (fitted["test_tasks"], fitted["eval_samples"]) == (8, 4)
    assert (
        ": 8 held-out tasks, 4 attempts at each, which can show a gain of about 75"
        in (given.words(0.1, config.replaced(**fitted)))
    )


def test_what_is_measured_takes_its_share_of_the_time_at_most() -> None:
    given = budget(time="1h", warm_start=True)
    for per_rollout in (0.05, 0.5, 2.0):
        fitted = given.fit(3600, per_rollout)
        held_out = 3 * 2 * fitted["test_tasks"] * fitted["eval_samples"]
        assert held_out * per_rollout <= 0.3 * 3600
        step = 64 * 2 * per_rollout
        validations = fitted["eval_tasks"] * per_rollout / fitted["eval_every"]
        assert validations <= 0.15 * step or fitted["eval_every"] == 5


def test_slower_rollouts_get_smaller_steps_and_validations() -> None:
    """After a warm start of an hour's run, 30 minutes are left at 6 s a rollout."""
    first = budget(time="1h", warm_start=True).fit(3500, 1.4)
    assert (first["eval_tasks"], first["group_size"]) == (64, 8)
    fitted = budget(time="1h", warm_start=True, **first)
    state = RunState(wall_seconds=1800, warmed={"held out": metrics(0.5)})
    assert not fitted.has_room(state, None, measured=6.0)
    rest = fitted.fit_rest(1800, 6.0)
    assert 8 <= rest["eval_tasks"] < 64
    assert 16 <= rest["group_size"] * rest["tasks_per_step"] < 48
    again = budget(time="1h", warm_start=True, **(first | rest))
    assert again.has_room(state, None, measured=6.0)
    same = again.fit_rest(1800, 0.1)
    assert {name: (first | rest)[name] for name in same} == same, "no size grows"


def test_slower_rollouts_get_smaller_measurements_after_the_baseline() -> None:
    given: dict[str, Any] = {"time": "30m", "test_tasks": 32, "eval_samples": 4}
    for warm_start, fast, slow in ((False, 4, 2), (True, 3, 1)):
        fitted = budget(warm_start=warm_start, eval_tasks=64, **given)
        for seconds, attempts, tasks in ((1.0, fast, 52), (3.0, slow, 17)):
            found = fitted.fit_measurements(1400, seconds)
            assert found == {"eval_samples": attempts, "eval_tasks": tasks}
        least = fitted.fit_measurements(10, 3.0)
        assert least == {"eval_samples": 1, "eval_tasks": 8}


class Calls(Sampling):
    share = 0.2  # type: ignore[assignment]
    least_group = 8


def test_rollouts_of_one_call_leave_room_for_larger_steps() -> None:
    whole = budget(time="30m")
    calls = replace(whole, sampling=lambda: Calls(None))
    few, more = (each.fit(1800, 4.0) for each in (whole, calls))
    assert more["tasks_per_step"] > few["tasks_per_step"]
    few, more = (each.fit(600, 4.0) for each in (whole, calls))
    assert few["group_size"] == 4
    assert more["group_size"] == 8
    assert more["test_tasks"] == few["test_tasks"]


def test_a_warm_start_imitates_what_fits() -> None:
    """Of 90 s, 3 s a task at a second a rollout; nano imitates 4,500 at most."""
    given = budget(time="6m", tasks_per_step=2)
    assert given.fit(360, 1.0)["warm_start_tasks"] == 30
    assert given.fit(360, 0.001)["warm_start_tasks"] == 4500
    chosen = budget(time="6m", tasks_per_step=2, warm_start_tasks=20)
    assert chosen.fit(360, 1.0)["warm_start_tasks"] == 20


def test_too_little_time_says_how_much_is_needed() -> None:
    with pytest.raises(UsageError, match=r"time = 1 min .* Give --time \d+m"):
        budget(time="60s").fit(60, 3.0)


def test_too_little_time_for_any_model_is_refused_by_the_plan(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"time = 10 s is too short for any run.* 5m"):
        trainer(tmp_path, 0, time="10s").plan()
    trainer(tmp_path, 0, time="30s").plan()


def test_a_step_must_leave_room_for_the_last_measurement() -> None:
    given = budget(time="10m", test_tasks=10, eval_samples=1)
    state = RunState(wall_seconds=400)
    assert given.has_room(state, 170, measured=1.0)
    assert not given.has_room(state, 190, measured=1.0)
    begun = state.model_copy(update={"step": 3})
    assert not given.has_room(begun, None, measured=2.0)
    assert budget().has_room(state, 1e9, 1e9)


def test_the_first_step_needs_room_for_its_rollouts_alone() -> None:
    """64 rollouts of 2 s, 20 in the end, and 400 s before: 568 s of 600."""
    given = budget(time="10m", test_tasks=10, eval_samples=1)
    assert given.has_room(RunState(wall_seconds=400), None, measured=2.0)
    assert not given.has_room(RunState(wall_seconds=440), None, measured=2.0)


@pytest.mark.slow
def test_a_time_that_ends_before_the_first_step_names_one_that_does_not(
    tmp_path: Path,
) -> None:
    with pytest.raises(TrainingInterrupted):
        trainer(tmp_path, 0, progress=Seen(stop_at="rollouts", turn=1)).train()
    run = tmp_path / "runs" / "run"
    with pytest.raises(TrainingFailedError) as raised:
        Trainer().train(resume=run, time="0.001s")
    assert f"agentgym train --resume {run} --time 1m" in str(raised.value)
    assert Trainer().train(resume=run, time="1h").steps == 4


def test_the_rate_falls_with_what_is_spent_first() -> None:
    given = budget(time="10m", episodes=1000, test_tasks=10, eval_samples=1)
    began = {"training_began": 80.0}
    assert given.spent(RunState(wall_seconds=80, **began), 1.0) == 0.0
    assert given.spent(RunState(wall_seconds=330, **began), 1.0) == 0.5
    assert given.spent(RunState(wall_seconds=90, episodes=900, **began), 1.0) == 0.9
    assert given.spent(RunState(wall_seconds=999, **began), 1.0) == 1.0


@pytest.mark.slow
def test_a_run_is_sized_before_its_baseline_and_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fewer = {"eval_samples": 1}
    monkeypatch.setattr(TimeBudget, "fit_measurements", lambda *_: fewer)
    progress = Seen()
    sizes: dict[str, Any] = {"test_tasks": 7, "eval_samples": 2}
    result = trainer(tmp_path, 0, progress=progress, time="1h", **sizes).train()
    assert (result.baseline.rollouts, result.metrics.rollouts) == (14, 7)
    assert "pass^2" not in str(result)
    assert progress.phases[:2] == ["timing", "before"]
    words = progress.of(events.Message)[0].text
    assert "In 1 h 0 min: 7 held-out tasks, 2 attempts at each" in words
    assert "a gain of about 86 points or more" in words
    assert (result.stopped, result.steps) == ("budget spent", 4)


class Slow(ScriptedPolicy):
    """Takes a minute for two of its first answers."""

    asked = 0

    async def chat(self, request: ChatRequest) -> ChatResult:
        self.asked += 1
        if self.asked in (3, 9):
            await asyncio.sleep(60)
        return await super().chat(request)


@pytest.mark.slow
def test_answers_that_go_on_are_not_waited_for_where_rollouts_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: dict[str, float] = {}

    def observe(event: events.Event) -> None:
        if isinstance(event, events.PhaseStarted):
            began[event.name] = time.monotonic()

    def create(config: TrainingConfig) -> ScriptedEngine:
        engine = ScriptedEngine(lambda _: Reply("Done."))
        engine._policy = Slow(lambda _: Reply("Done."))
        return engine

    monkeypatch.setattr(loop, "create_engine", create)
    result = trainer(tmp_path, 0, progress=observe, time="1h").train()
    assert began["before"] - began["timing"] < 30
    assert (result.stopped, result.steps) == ("budget spent", 4)


@pytest.mark.slow
@pytest.mark.parametrize(("most_s", "ended"), [(3600, 13), (0, 8)])
def test_fewer_rollouts_are_timed_where_they_take_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_s: float, ended: int
) -> None:
    monkeypatch.setattr(TimeBudget, "timing_s", most_s)
    seen = Seen()
    trainer(tmp_path, 0, progress=seen, time="1h").train()
    begun = [n for n, e in enumerate(seen.events) if isinstance(e, events.PhaseStarted)]
    timed = seen.events[begun[0] : begun[1]]
    assert sum(isinstance(event, events.RolloutDone) for event in timed) == ended


def test_a_warm_start_needs_no_time_for_steps() -> None:
    """At 20 s a rollout, 6 tasks measured 3 times in 30 % of an hour."""
    with pytest.raises(
        UsageError, match=r"2 steps of 16 rollouts and 6 .*tasks_per_step=2"
    ):
        budget(time="20m").fit(1200, 25.0)
    config = TrainingConfig.create(time="20m", warm_start=True)
    long = TimeBudget(config, int, workers=1)
    assert long.fit(1200, 19.0)["test_tasks"] == 6
    with pytest.raises(
        UsageError, match=r"a warm start and 6 .*, measured 3 times.*max_tokens"
    ):
        long.fit(1200, 25.0)


def test_a_warm_start_leaves_half_of_the_time_to_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 600 s: 100 are gone, 2 sets of 10 rollouts, twice, take 200, 4 thrice 60."""
    now = [50.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    given = budget(time="10m", test_tasks=10, eval_samples=1, eval_tasks=4)
    gone = given.warm_start_clock(RunState(wall_seconds=100), 5.0)
    assert gone() == 0.0
    now[0] += 60
    assert gone() == 0.5
    assert budget().warm_start_clock(RunState(), 5.0)() == 0.0


def test_a_step_leaves_room_for_the_validation_that_follows_it() -> None:
    given = budget(
        time="10m", test_tasks=10, eval_samples=1, eval_tasks=30, eval_every=5
    )
    states = [RunState(step=step, wall_seconds=460) for step in (3, 4)]
    assert [given.has_room(state, 100, measured=1.0) for state in states] == [
        *(True, False)
    ]


@pytest.mark.slow
def test_a_run_ends_in_time_and_measures_what_it_has(tmp_path: Path) -> None:
    with pytest.raises(TrainingInterrupted):
        again = Seen(stop_at="rollouts", turn=3)
        trainer(tmp_path, 0, progress=again, time="1h").train()
    result = Trainer().train(resume=tmp_path / "runs" / "run", time="0.001s")
    assert (result.stopped, result.steps) == ("time spent", 2)
    assert result.metrics.tasks == 1
    state = RunFolder(tmp_path / "runs" / "run").load_state()
    assert state is not None
    assert state[0].rollout_seconds


def test_steps_by_the_clock_cannot_be_deterministic(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="leave out --time or deterministic"):
        trainer(tmp_path, 0, time="1h", deterministic=True).plan()


def test_the_time_that_is_asked_for_is_enough_and_not_much_more() -> None:
    with pytest.raises(UsageError, match="is too short") as raised:
        budget(time="5m").fit(280, 20.0)
    found = re.search(r"Give --time (\d+)m", str(raised.value))
    assert found is not None
    minutes = int(found[1])
    assert budget(time=f"{minutes}m").fit(60 * minutes - 20, 20.0)
    with pytest.raises(UsageError, match="is too short"):
        budget(time=f"{minutes // 2}m").fit(60 * (minutes // 2) - 20, 20.0)
