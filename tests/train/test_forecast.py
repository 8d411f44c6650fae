"""Forecast: what is left of a run, from what was timed of it."""

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.train.time_limit import Forecast


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


SIZES = {"group_size": 8, "tasks_per_step": 8, "eval_every": 2, "eval_tasks": 10}


def measured(clock: Clock, forecast: Forecast, rollouts: int, seconds: float) -> None:
    """Measure rollouts one after the other, ten seconds after asking for them."""
    with forecast.measuring():
        clock.now += 10
        for _ in range(rollouts):
            clock.now += seconds
            forecast.rollout_done(seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def forecast(clock: Clock) -> Forecast:
    """Return that of a run of 640 episodes in 10 steps, and 5 validations."""
    config = TrainingConfig.create(episodes=640, **SIZES)
    return Forecast(config, held_out=50, clock=clock)


def test_nothing_is_told_before_anything_was_timed(forecast: Forecast) -> None:
    assert forecast.left(0, 0, 0, 0.0) is None


def test_the_baseline_tells_the_most_whatever_its_workers_took_to_start(
    clock: Clock, forecast: Forecast
) -> None:
    measured(clock, forecast, 100, 0.5)
    rest = 0.5 * (50 + 5 * 10)
    assert forecast.left(0, 0, 0, 0.0) == pytest.approx(640 + rest)


@pytest.mark.parametrize("rollouts", [3, 32])
def test_time_is_divided_by_the_rollouts_that_ran(
    clock: Clock, forecast: Forecast, rollouts: int
) -> None:
    measured(clock, forecast, rollouts, 2.0)
    assert forecast.measured == pytest.approx(2.0)


def test_a_warm_start_to_come_is_counted_with_what_is_measured_of_it(
    clock: Clock, forecast: Forecast
) -> None:
    measured(clock, forecast, 100, 0.5)
    rest = 0.5 * (50 + 5 * 10) + 0.5 * (50 + 10)
    assert forecast.left(0, 0, 200, 0.0) == pytest.approx(640 + rest + 0.5 * 200)


def test_steps_tell_more_and_the_end_is_counted(
    clock: Clock, forecast: Forecast
) -> None:
    measured(clock, forecast, 100, 0.5)
    forecast.step_done(64, 40.0)
    forecast.step_done(64, 60.0)
    rest = 0.5 * (50 + 4 * 10)
    assert forecast.left(128, 2, 0, 0.0) == pytest.approx(400 + rest)
    assert forecast.left(640, 10, 0, 0.0) == pytest.approx(25)


def test_a_run_with_a_time_has_no_more_than_the_rest_of_it_left(clock: Clock) -> None:
    config = TrainingConfig.create(episodes=640, time="10m", **SIZES)
    forecast = Forecast(config, held_out=50, clock=clock)
    measured(clock, forecast, 100, 0.5)
    for spent, left in ((0.0, 600), (500.0, 100), (700.0, 0)):
        assert forecast.left(0, 0, 0, spent) == left


def test_a_resumed_run_is_forecast_by_its_steps_alone(forecast: Forecast) -> None:
    forecast.step_done(64, 64.0)
    assert forecast.left(640, 10, 0, 0.0) == pytest.approx(50)


def test_a_measurement_that_was_given_up_says_nothing(
    clock: Clock, forecast: Forecast
) -> None:
    with pytest.raises(KeyboardInterrupt), forecast.measuring():
        forecast.rollout_done(1.0)
        raise KeyboardInterrupt
    assert forecast.left(0, 0, 0, 0.0) is None


@pytest.mark.parametrize(("seconds", "told"), [(10.0, True), (2.0, False)])
def test_a_baseline_that_takes_very_long_is_told_once_as_it_begins(
    clock: Clock, forecast: Forecast, seconds: float, told: bool
) -> None:
    """50 rollouts of 20 s, or of 2 s."""
    said = []
    with forecast.measuring(is_baseline=True):
        for _ in range(20):
            clock.now += 2 * seconds
            forecast.rollout_done(seconds)
            said.append(forecast.long_baseline())
    found = [text for text in said if text]
    assert len(found) == told
    assert not told or "the 50 rollouts of the baseline take about" in found[0]
    with forecast.measuring():
        assert forecast.long_baseline() == ""
