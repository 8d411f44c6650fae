"""Training tasks come in a fixed order, families that teach something more often."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache

import pytest

from agentgym import TrainingConfig
from agentgym.core.task import Split, Task
from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import ModelCall, Step, ToolCall, Trajectory
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.registry import get_scenario
from agentgym.train.tasks import StreamState, TaskStream

SCENARIO = get_scenario("coding")


@pytest.fixture(autouse=True, scope="module")
def made_once() -> Iterator[None]:
    """Make the thousand tasks of an epoch once, not in each test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SCENARIO, "tasks", cache(SCENARIO.tasks))
        yield


def settings(*, adaptive: bool = True) -> TrainingConfig:
    choice = "adaptive" if adaptive else "uniform"
    return TrainingConfig.create(seed=3, task_choice=choice, failure_cost=0.5)


def stream(state: StreamState | None = None, *, adaptive: bool = True) -> TaskStream:
    return TaskStream(SCENARIO, settings(adaptive=adaptive), state or StreamState())


def tell(
    to: TaskStream, family: str, *rewards: float | None, steps: Sequence[Step] = ()
) -> None:
    """Report a group of attempts, each of one model call and ``steps``."""
    group = [
        Trajectory(
            rollout_id=f"r{number}",
            scenario="coding",
            task_id="t",
            family=family,
            reward=reward,
            success=bool(reward),
            steps=[ModelCall(), *steps],
        )
        for number, reward in enumerate(rewards)
    ]
    to.learn([group])


@pytest.mark.slow
def test_without_choice_the_scenarios_tasks_come_as_they_are() -> None:
    uniform = stream(adaptive=False)
    tell(uniform, "lint", 1.0, 1.0)

    taken = [task.id for task in uniform.take(20) + uniform.take(1100)]

    made = SCENARIO.tasks(Split.TRAIN, 3 * 1_000_003, 1024)
    more = SCENARIO.tasks(Split.TRAIN, 3 * 1_000_003 + 1, 96)
    assert taken == [task.id for task in made + more]


def test_nothing_is_passed_over_before_anything_is_known() -> None:
    assert [t.id for t in stream().take(40)] == [
        t.id for t in stream(adaptive=False).take(40)
    ]


@pytest.mark.parametrize(("success", "low", "high"), [(1, 0.05, 0.2), (0, 0.2, 0.4)])
def test_a_family_whose_attempts_end_alike_comes_less_often(
    success: int, low: float, high: float
) -> None:
    """What never succeeds comes more often than what always does."""
    choosing = stream()
    for _ in range(8):
        tell(choosing, "lint", *[float(success)] * 8)
        tell(choosing, "read_file", 1.0, 0.0)

    taken = Counter(task.family for task in choosing.take(2000))

    assert low < taken["lint"] / taken["read_file"] < high
    assert taken["format_file"] == pytest.approx(taken["read_file"], abs=1)


def test_a_family_comes_back_when_its_attempts_differ_again() -> None:
    choosing = stream()
    for other in [*[1.0] * 8, *[0.0] * 12]:
        tell(choosing, "lint", 1.0, other)

    taken = Counter(task.family for task in choosing.take(500))

    assert taken["lint"] == pytest.approx(taken["read_file"], abs=2)


def test_a_mistake_that_all_attempts_make_is_something_to_learn() -> None:
    broken = ToolCall(name="edit_file", outcome=ToolOutcome.RULE_BROKEN)
    choosing = stream()
    for _ in range(6):
        tell(choosing, "lint", *[0.25] * 8, steps=[broken, ModelCall()])
        tell(choosing, "read_file", *[0.25] * 8)

    taken = Counter(task.family for task in choosing.take(1000))

    assert taken["lint"] > 1.3 * taken["read_file"]


def attempted(to: TaskStream, rewards: dict[str, list[float]]) -> list[str]:
    """Run a step in which the tasks of these ids earn ``rewards``, others all 1.

    Return the ids of the step's tasks.
    """

    def attempt(chosen: Sequence[Task], first: int) -> list[list[Trajectory]]:
        return [
            [
                Trajectory(
                    rollout_id=f"{first}-{at}-{number}",
                    scenario="coding",
                    task_id=task.id,
                    family=task.family,
                    reward=reward,
                    steps=[ModelCall()],
                )
                for number, reward in enumerate(rewards.get(task.id, [1.0, 1.0]))
            ]
            for at, task in enumerate(chosen)
        ]

    def varies(group: Sequence[Trajectory]) -> bool:
        return len({t.reward for t in group}) > 1

    return [group[0].task_id for group in to.groups(100, attempt, varies)]


def test_a_task_whose_attempts_differed_comes_again_until_they_end_alike() -> None:
    choosing = TaskStream(SCENARIO, settings(), StreamState())
    mixed = SCENARIO.tasks(Split.TRAIN, 3 * 1_000_003, 1)[0].id

    first = attempted(choosing, {mixed: [1.0, 0.0]})
    second = attempted(choosing, {})  # solved
    third = attempted(choosing, {})

    assert first.count(mixed) == 1
    assert mixed in second
    assert mixed not in third


def test_a_task_that_always_differs_does_not_come_for_ever() -> None:
    choosing = TaskStream(SCENARIO, settings(), StreamState())
    mixed = SCENARIO.tasks(Split.TRAIN, 3 * 1_000_003, 1)[0].id

    ids = [i for _ in range(8) for i in attempted(choosing, {mixed: [1.0, 0.0]})]

    assert ids.count(mixed) == 3


def test_only_the_first_group_of_a_task_is_new() -> None:
    choosing = TaskStream(SCENARIO, settings(), StreamState())
    mixed = SCENARIO.tasks(Split.TRAIN, 3 * 1_000_003, 1)[0].id
    group = [Trajectory(rollout_id="r", scenario="coding", task_id=mixed)]

    attempted(choosing, {mixed: [1.0, 0.0]})
    assert choosing.is_new(group)
    attempted(choosing, {mixed: [1.0, 0.0]})
    assert not choosing.is_new(group)


def test_a_saved_state_goes_on_where_it_stopped() -> None:
    whole, state = stream(), StreamState()
    half = stream(state)
    for choosing in (whole, half):
        tell(choosing, "lint", 1.0, 1.0)
        tell(choosing, "read_file", 1.0, 0.8)
    expected = [task.id for task in whole.take(300)]

    first = [task.id for task in half.take(120)]
    saved = StreamState.model_validate_json(state.model_dump_json())
    rest = [task.id for task in stream(saved).take(180)]

    assert first + rest == expected


def short(count: int, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    """Return the scenario with ``count`` fixed tasks, whatever is asked for."""
    scenario = get_scenario("coding")
    fixed = scenario.tasks(Split.TRAIN, 0, count)
    monkeypatch.setattr(scenario, "tasks", lambda *_: iter(fixed))
    return scenario


@pytest.mark.parametrize("adaptive", [True, False])
def test_a_short_list_of_tasks_is_gone_through_again(
    monkeypatch: pytest.MonkeyPatch, adaptive: bool
) -> None:
    scenario, state = short(3, monkeypatch), StreamState()
    names = [task.id for task in scenario.tasks(Split.TRAIN, 0, 3)]

    def choosing(state: StreamState) -> TaskStream:
        return TaskStream(scenario, settings(adaptive=adaptive), state)

    first = [task.id for task in choosing(state).take(4)]
    saved = StreamState.model_validate_json(state.model_dump_json())
    rest = [task.id for task in choosing(saved).take(1100)]

    assert (first + rest)[:8] == (names * 3)[:8]
    assert set(Counter(first + rest)) == set(names)


def drawn(
    algorithm: str,
    room: int,
    signals: Sequence[bool],
    choice: str = "uniform",
    differing: float = 1.0,
) -> list[tuple[int, int]]:
    """Sample a step of four tasks; return the size and the first number of each draw.

    ``signals`` says which of the groups, in order, have a signal.
    """
    config = TrainingConfig.create(
        seed=3, task_choice=choice, algorithm=algorithm, tasks_per_step=4
    )
    tasks = TaskStream(SCENARIO, config, StreamState(differing=differing))
    coming, draws = iter(signals), list[tuple[int, int]]()

    def attempt(chosen: Sequence[Task], first: int) -> list[list[Trajectory]]:
        draws.append((len(chosen), first))
        return [
            [
                Trajectory(
                    rollout_id=task.id,
                    scenario="coding",
                    task_id=task.id,
                    reward=float(next(coming, False)),
                )
            ]
            for task in chosen
        ]

    groups = tasks.groups(room, attempt, lambda group: bool(group[0].reward))
    taken = TaskStream(SCENARIO, config, StreamState()).take(len(groups))
    assert [group[0].task_id for group in groups] == [task.id for task in taken]
    return draws


def test_dapo_draws_other_tasks_for_groups_without_a_signal() -> None:
    """Until four groups have one, the budget is spent, or ten draws were made."""
    some = [True, False, False, True, False, True, True]

    assert drawn("dapo", 100, some) == [(4, 0), (2, 4), (1, 6)]
    assert drawn("dapo", 5, some) == [(4, 0), (1, 4)]
    assert drawn("dapo", 100, [True] * 4) == [(4, 0)]
    assert drawn("dapo", 100, []) == [(4, 4 * number) for number in range(10)]


def test_others_take_each_task_once_if_tasks_are_to_be_taken_in_turn() -> None:
    assert drawn("grpo", 100, []) == [(4, 0)]
    assert drawn("grpo", 3, []) == [(3, 0)]
    assert drawn("grpo", 0, []) == [(1, 0)]


def test_others_replace_groups_without_a_signal_once() -> None:
    some = [True, False, False, True, False]

    assert drawn("rloo", 100, some, "adaptive") == [(4, 0), (2, 4)]
    assert drawn("rloo", 5, some, "adaptive") == [(4, 0), (1, 4)]
    assert drawn("rloo", 100, [True] * 4, "adaptive") == [(4, 0)]


def test_a_step_asks_at_once_for_the_tasks_that_it_probably_needs() -> None:
    some = [True, False, True, False, True, False]

    assert drawn("rloo", 100, some, "adaptive", 0.7) == [(6, 0), (1, 6)]
    assert drawn("rloo", 100, some, "adaptive", 0.1) == [(8, 0)]
    assert drawn("rloo", 7, some, "adaptive", 0.1) == [(7, 0)]
    state = StreamState()
    tasks = TaskStream(SCENARIO, settings(), state)
    made = [Trajectory(rollout_id="a", scenario="coding", task_id="a")]
    for _ in range(9):
        tasks.groups(100, lambda chosen, _: [made] * len(chosen), lambda _: False)
    assert state.differing < 0.1
