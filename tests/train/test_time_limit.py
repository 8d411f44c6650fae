"""A budget in time: what is measured, and how many steps are done, fits into it."""

import asyncio
import re
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentgym import Trainer
from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest, ChatResult
from agentgym.core.trajectory import Trajectory
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.errors import (
    ConfigError,
    TrainingFailedError,
    TrainingInterrupted,
    UsageError,
)
from agentgym.evaluate import events
from agentgym.train import loop, time_limit
from agentgym.train.run_state import RunState
from agentgym.train.sampling import Sampling
from agentgym.train.time_limit import RunClock
from tests.observers import Seen
from tests.scripted_engine import ScriptedEngine
from tests.train.test_loop import scripted, trainer
from tests.ui.made_up import metrics

__all__ = ["scripted"]

Clock = Callable[..., RunClock]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return a function that makes the clock of a run with two held-out sets."""
    monkeypatch.setattr(time_limit, "held_out_count", lambda *given: 2 * given[-1])

    def make(sampling: Sampling | None = None, **settings: Any) -> RunClock:
        state = settings.pop("state", {})
        run: Any = SimpleNamespace(
            config=TrainingConfig.create(**settings),
            scenario=None,
            state=RunState(**{"rollout_seconds": 1.0, **state}),
            plan=SimpleNamespace(workers=2),
            sampling=sampling or Sampling(None),
            folder=SimpleNamespace(path=Path("runs/it")),
            progress=Seen(),
            check_interrupt=lambda: None,
        )
        return RunClock(run)

    return make


@pytest.mark.parametrize(("text", "seconds"), [("30m", 1800), ("1h30m", 5400)])
def test_times_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert TrainingConfig.create(time=text).time == seconds
    assert TrainingConfig.create(time=seconds).time == seconds


@pytest.mark.parametrize("text", ["soon", "0s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="time ="):
        TrainingConfig.create(time=text)


def test_held_out_tasks_come_first_and_then_attempts_at_each(clock: Clock) -> None:
    short = clock(time="30m").sizes(1800, 1.0)
    assert (short["test_tasks"], short["eval_samples"]) == (96, 1)
    long = clock(time="2h").sizes(7200, 1.0)
    assert (long["test_tasks"], long["eval_samples"]) == (96, 4)
    slow = clock(time="30m", tasks_per_step=2).sizes(1800, 10.0)
    assert (slow["test_tasks"], slow["eval_samples"]) == (13, 1)
    assert slow["eval_tasks"] == 8


def test_a_small_tasks_file_is_not_called_larger_than_it_is(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limit, "held_out_count", lambda *given: min(given[-1], 8))
    fitted = clock(time="30m").sizes(1800, 0.1)
    assert (fitted["test_tasks"], fitted["eval_samples"]) == (8, 4)


def test_what_is_measured_takes_its_share_of_the_time_at_most(clock: Clock) -> None:
    for each in (0.05, 0.5, 2.0):
        fitted = clock(time="1h", warm_start=True).sizes(3600, each)
        held_out = 3 * 2 * fitted["test_tasks"] * fitted["eval_samples"]
        assert held_out * each <= 0.3 * 3600
        step = 64 * 2 * each
        validations = fitted["eval_tasks"] * each / fitted["eval_every"]
        assert validations <= 0.15 * step or fitted["eval_every"] == 5


def test_slower_rollouts_get_smaller_steps_and_measurements(clock: Clock) -> None:
    """After a warm start of an hour's run, 30 minutes are left at 6 s a rollout."""
    given: dict[str, Any] = {"time": "1h", "warm_start": True}
    first = clock(**given).sizes(3500, 1.4)
    assert (first["eval_tasks"], first["group_size"]) == (64, 8)
    warmed = {"wall_seconds": 1800, "warmed": {"held out": metrics(0.5)}}
    given["state"] = warmed | {"rollout_seconds": 6.0}
    fitted = clock(**given, **first)
    assert not fitted.has_room
    rest = fitted.sizes_of_rest(1800, 6.0)
    assert 8 <= rest["eval_tasks"] < 64
    assert 16 <= rest["group_size"] * rest["tasks_per_step"] < 48
    again = clock(**given, **(first | rest))
    assert again.has_room
    same = again.sizes_of_rest(1800, 0.1)
    assert {name: (first | rest)[name] for name in same} == same, "no size grows"


class Calls(Sampling):
    share = 0.2  # type: ignore[assignment]
    least_group = 8


def test_rollouts_of_one_call_leave_room_for_larger_steps(clock: Clock) -> None:
    few, more = (clock(s, time="30m").sizes(1800, 4.0) for s in (None, Calls(None)))
    assert more["tasks_per_step"] > few["tasks_per_step"]
    few, more = (clock(s, time="30m").sizes(600, 4.0) for s in (None, Calls(None)))
    assert (few["group_size"], more["group_size"]) == (4, 8)
    assert more["test_tasks"] == few["test_tasks"]


def test_a_warm_start_imitates_what_fits(clock: Clock) -> None:
    """Of 90 s, 3 s a task at a second a rollout; nano imitates 4,500 at most."""
    given = clock(time="6m", tasks_per_step=2)
    assert given.sizes(360, 1.0)["warm_start_tasks"] == 30
    assert given.sizes(360, 0.001)["warm_start_tasks"] == 4500
    chosen = clock(time="6m", tasks_per_step=2, warm_start_tasks=20)
    assert chosen.sizes(360, 1.0)["warm_start_tasks"] == 20


@pytest.mark.parametrize("warm_start", [False, True])
def test_the_time_that_is_asked_for_is_enough_and_not_much_more(
    clock: Clock, warm_start: bool
) -> None:
    with pytest.raises(UsageError, match=r"time = 5 min .* too short") as raised:
        clock(time="5m", warm_start=warm_start).sizes(280, 20.0)
    assert ("a warm start and 6" in str(raised.value)) == warm_start
    found = re.search(r"Give --time (\d+)m", str(raised.value))
    assert found is not None
    minutes = int(found[1])
    given = {"time": f"{minutes}m", "warm_start": warm_start}
    assert clock(**given).sizes(60 * minutes - 20, 20.0)
    with pytest.raises(UsageError, match="is too short"):
        clock(**given).sizes(60 * (minutes // 2) - 20, 20.0)


def test_too_little_time_for_any_model_is_refused_by_the_plan(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"time = 10 s is too short for any run.* 5m"):
        trainer(tmp_path, 0, time="10s").plan()
    trainer(tmp_path, 0, time="30s").plan()


def test_a_step_leaves_room_for_the_measurements_after_it(clock: Clock) -> None:
    given = {"time": "10m", "test_tasks": 10, "eval_samples": 1}
    for seconds, fits in ((170, True), (190, False)):
        running = clock(**given, state={"wall_seconds": 400})
        running.step_ended(64, seconds)
        assert running.has_room is fits
    for step, fits in ((3, True), (4, False)):  # a validation follows the fifth
        state = {"step": step, "wall_seconds": 460}
        running = clock(**given, eval_tasks=30, eval_every=5, state=state)
        running.step_ended(64, 100)
        assert running.has_room is fits
    assert clock(state={"wall_seconds": 1e9}).has_room


def test_the_first_step_needs_room_for_its_rollouts_alone(clock: Clock) -> None:
    """64 rollouts of 2 s, 20 in the end, and 400 s before: 568 s of 600."""
    for spent, step, fits in ((400, 0, True), (440, 0, False), (400, 3, False)):
        state = {"wall_seconds": spent, "step": step, "rollout_seconds": 2.0}
        given = clock(time="10m", test_tasks=10, eval_samples=1, state=state)
        assert given.has_room is fits


def test_the_rate_falls_with_what_is_spent_first(clock: Clock) -> None:
    given = {"time": "10m", "episodes": 1000, "test_tasks": 10, "eval_samples": 1}
    for wall, episodes, share in ((80, 0, 0.0), (330, 0, 0.5), (90, 900, 0.9)):
        state = {"wall_seconds": wall, "episodes": episodes, "training_began": 80.0}
        assert clock(**given, state=state).spent == share


def test_a_warm_start_leaves_half_of_the_time_to_training(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 600 s: 100 are gone, 2 sets of 10 rollouts, twice, take 200, 4 thrice 60."""
    now = [50.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    sizes = {"test_tasks": 10, "eval_samples": 1, "eval_tasks": 4}
    state = {"wall_seconds": 100, "rollout_seconds": 5.0}
    gone = clock(time="10m", state=state, **sizes).warm_start_spent()
    assert gone() == 0.0
    now[0] += 60
    assert gone() == 0.5
    assert clock().warm_start_spent()() == 0.0


def rollout(seconds: float) -> Trajectory:
    return Trajectory.model_construct(duration_s=seconds)


def test_the_time_left_is_told_by_what_was_timed(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    sizes = {"test_tasks": 25, "eval_samples": 1, "eval_tasks": 10, "eval_every": 2}
    running = clock(episodes=640, state={"rollout_seconds": None}, **sizes)
    seen: Any = running._run.progress
    running.report_time_left()
    assert not seen.of(events.TimeLeft)
    with running.measuring():
        now[0] += 10  # until the workers have started
        for _ in range(100):
            now[0] += 0.5
            running.rollout_ended(rollout(0.5))
    running.report_time_left()
    running.report_time_left(imitated=200)
    first, warmed = (event.seconds for event in seen.of(events.TimeLeft))
    assert first == pytest.approx(640 + 0.5 * (50 + 5 * 10))
    assert warmed == pytest.approx(first + 0.5 * (50 + 10 + 200))
    running._run.state.episodes, running._run.state.step = 64, 1
    assert running.step_ended(64, 32.0) == pytest.approx(288 + 50)


def test_a_run_with_a_time_has_no_more_than_the_rest_of_it_left(clock: Clock) -> None:
    for spent, left in ((500.0, 100), (700.0, 0)):
        running = clock(time="10m", state={"wall_seconds": spent})
        assert running.step_ended(64, 1000.0) == left


@pytest.mark.parametrize(("seconds", "told"), [(10.0, 1), (2.0, 0)])
def test_a_baseline_that_takes_very_long_is_told_once_as_it_begins(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, seconds: float, told: int
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    running = clock(test_tasks=25, eval_samples=1)
    for is_baseline in (True, False):
        with running.measuring(is_baseline=is_baseline):
            for _ in range(20):
                now[0] += 2 * seconds
                running.rollout_ended(rollout(seconds))
    seen: Any = running._run.progress
    found = [event.text for event in seen.of(events.Warned)]
    assert len(found) == told
    assert not told or "the 50 rollouts of the baseline take about" in found[0]


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


@pytest.mark.slow
def test_a_run_is_sized_before_its_baseline_and_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fewer = {"eval_samples": 1}
    whole = RunClock.sizes
    monkeypatch.setattr(
        RunClock, "sizes", lambda *given: whole(*given) | {"eval_samples": 2}
    )
    monkeypatch.setattr(RunClock, "sizes_of_rest", _once(RunClock.sizes_of_rest, fewer))
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


def _once(first: Callable[..., Any], later: dict[str, Any]) -> Callable[..., Any]:
    """Return a method that calls ``first`` once, and then returns ``later``."""
    calls: list[int] = []

    def method(*given: Any) -> Any:
        calls.append(1)
        return later if calls[1:] else first(*given)

    return method


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
def test_a_run_ends_in_time_and_measures_what_it_has(tmp_path: Path) -> None:
    with pytest.raises(TrainingInterrupted):
        again = Seen(stop_at="rollouts", turn=3)
        trainer(tmp_path, 0, progress=again, time="1h").train()
    result = Trainer().train(resume=tmp_path / "runs" / "run", time="0.001s")
    assert (result.stopped, result.steps) == ("time spent", 2)
    assert result.metrics.tasks == 1


def test_steps_by_the_clock_cannot_be_deterministic(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="leave out --time or deterministic"):
        trainer(tmp_path, 0, time="1h", deterministic=True).plan()
