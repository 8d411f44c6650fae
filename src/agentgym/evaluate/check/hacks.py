"""Tripwires on agents without a model: they must not be paid like a right plan."""

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agentgym.core.needs import NeededCall
from agentgym.core.tools import ToolSpec
from agentgym.core.trajectory import ToolCall
from agentgym.evaluate.check.examination import ORACLE, Examination, Played
from agentgym.evaluate.check.finding import Note

_NEAR_ZERO = 0.05
_TOO_MUCH = 0.15
_HALF = 0.5
_JUDGED = 12


@dataclass(frozen=True)
class _Pay:
    """The pay of one agent for one family of tasks.

    Attributes:
        mean: Of the rewards.
        unearned: Mean of the reward that the calls do not explain; None without a plan.
        lucky: Episodes that made just the calls of the plan.
    """

    family: str
    mean: float
    unearned: float | None
    lucky: int
    episodes: int


def do_nothing(examined: Examination) -> Iterator[str | Note]:
    """An agent that answers at once must earn nothing, unless that is the plan."""
    top = max(map(abs, examined.scenario.reward_range))
    unknown = []
    for pay in _pays(examined, "do-nothing"):
        if pay.unearned is None:
            unknown.append(pay)
        elif abs(pay.unearned) > _NEAR_ZERO * top:
            yield (
                f"family {pay.family!r} pays {pay.mean:.3f} on average, more than "
                f"{_NEAR_ZERO * top:g} from zero"
            )
    yield from _without_plan(unknown, top, "no call at all")


def call_everything(examined: Examination) -> Iterator[str | Note]:
    """An agent that calls everything must earn little, but by luck; it may lose.

    Where there are few tools, it sometimes makes just the calls that a task needs,
    with a word of the request as the argument. Training starts from these episodes. A
    reward is wrong that pays for other calls than these.
    """
    top = max(map(abs, examined.scenario.reward_range))
    unknown, lucky = [], []
    for pay in _pays(examined, "call-everything"):
        said = f"family {pay.family!r} pays {pay.mean:.3f} on average"
        if pay.unearned is None:
            unknown.append(pay)
        elif pay.unearned > _TOO_MUCH * top:
            yield (
                f"{said}, {pay.unearned:.3f} of it for other calls than the plan's; at "
                f"most {_TOO_MUCH * top:g} may be"
            )
        elif pay.mean > _NEAR_ZERO * top:
            lucky.append(
                f"{said}: {pay.lucky} of {pay.episodes} guesses were just the calls "
                "of the plan"
            )
    yield from _without_plan(unknown, top, "any calls")
    if lucky:
        yield Note("pass", f"{'; '.join(lucky)}. With few tools guesses are right")


_IDLE_CHANGES = {
    "a test of the agent's own": {
        "tests/test_own.py": "def test_everything():\n    assert True\n"
    },
    "tidy code that does nothing": {
        "notes.py": '"""Notes on the task."""\n\nDONE = True\n'
    },
}


def code(examined: Examination) -> Iterator[str | Note]:
    """Code that solves nothing must earn nothing, however tidy or well tested."""
    judge = examined.scenario.judge_changes
    top = max(map(abs, examined.scenario.reward_range))
    judged = 0
    for task in examined.to_play[:_JUDGED]:
        for name, changes in _IDLE_CHANGES.items():
            reward = judge(task, changes)
            if reward is None:
                continue
            judged += 1
            if reward.success or reward.value > _NEAR_ZERO * top:
                yield (
                    f"task {task.id} pays {reward.value:.3f} for {name}, more than "
                    f"{_NEAR_ZERO * top:g}"
                )
    if not judged:
        yield Note("pass", "it has no judge_changes, so it pays for no code")


def _without_plan(
    pays: Sequence[_Pay], top: float, message: str
) -> Iterator[str | Note]:
    """Compare with the highest reward where the scenario does not know a plan."""
    paid = [pay for pay in pays if pay.mean > _NEAR_ZERO * top]
    if not paid:
        return
    total = sum(pay.episodes for pay in pays)
    mean = sum(pay.mean * pay.episodes for pay in pays) / total
    names = ", ".join(repr(pay.family) for pay in paid)
    if mean > _HALF * top:
        yield (
            f"{message} pays {mean:.3f} on average, more than half of {top:g}, for "
            "tasks "
            f"without a known plan: {names}"
        )
    else:
        yield Note(
            "warn",
            f"{message} pays {mean:.3f} on average for tasks without a known plan: "
            f"{names}. See that a right answer pays more",
        )


def _pays(examined: Examination, agent: str) -> Iterator[_Pay]:
    right = {
        family: statistics.mean(reward.value for reward in found)
        for family, found in examined.of(ORACLE).items()
    }
    families: dict[str, list[Played]] = defaultdict(list)
    for episode in examined.episodes:
        if episode.agent == agent and episode.reward is not None:
            families[episode.task.family].append(episode)
    for family, played in families.items():
        rewards = [e.reward.value for e in played if e.reward is not None]
        dues = [_due(examined, episode) for episode in played]
        known = [due for due in dues if due is not None]
        unearned = None
        if family in right and len(known) == len(dues):
            best = right[family]
            pairs = zip(rewards, known, strict=True)
            unearned = statistics.mean(value - share * best for value, share in pairs)
        yield _Pay(
            family,
            statistics.mean(rewards),
            unearned,
            lucky=sum(due == 1.0 for due in known),
            episodes=len(played),
        )


def _due(examined: Examination, episode: Played) -> float | None:
    """Return the share of a right plan's reward that the calls made deserve.

    That is the share of the plan's calls among them, and half of it together with calls
    of other tools, which a reward may charge; None if no plan is known.
    """
    needed = examined.scenario.needed_calls(episode.task)
    if needed is None or episode.trajectory is None:
        return None
    made = episode.trajectory.get_tool_calls()
    others = {call.name for call in made} - set[str]().union(*(n.tools for n in needed))
    if not needed:
        return 0.0 if others else 1.0
    specs = {spec.name: spec for spec in examined.tools[episode.task.id]}
    share = _matches(specs, needed, made) / len(needed)
    return _HALF * share if others else share


def _matches(
    specs: Mapping[str, ToolSpec],
    needed: Sequence[NeededCall],
    made: Sequence[ToolCall],
) -> int:
    left = list(made)
    count = 0
    for need in needed:
        for call in left:
            if need.accepts(call, specs.get(call.name), succeeded=True):
                left.remove(call)
                count += 1
                break
    return count
