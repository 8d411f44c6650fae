"""Tripwires (tests of a scenario) that check the rewards of agents without a model.

Such agents must earn less than a right solution.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentgym.evaluate.check.examination import ORACLE, Examination, Note, Played

_NEAR_ZERO = 0.05
_TOO_MUCH = 0.15
_HALF = 0.5
_JUDGED = 12


@dataclass(frozen=True)
class _Pay:
    """The rewards of one agent in one family (kind) of tasks.

    Attributes:
        unearned: Mean difference between the reward and the reward that the agent's
            calls deserve (see ``_due``); None if the needed calls are unknown.
        lucky: Number of episodes that by chance made all needed calls and called no
            other tool.
    """

    family: str
    mean: float
    unearned: float | None
    lucky: int
    episodes: int


def do_nothing(examined: Examination) -> Iterator[str | Note]:
    """Check that an agent without tool calls earns nothing."""
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
    """Check that an agent that calls every tool earns little; it may earn less than 0.

    In a scenario with few tools, the agent makes the needed calls in some episodes by
    chance. A reward for these calls is right; a reward for other calls is a fault.
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
    """Check that useless changes to files, e.g. an empty test, earn nothing."""
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
    """Yield a problem or note on rewards in tasks whose needed calls are unknown.

    ``pays`` are the rewards in these tasks, and ``top`` is the highest possible reward.
    A mean reward above half of ``top`` is a problem, a lower one gives a warning.
    ``message`` is the start of the text and names the agent's calls, e.g.
    ``any calls``.
    """
    paid = [pay for pay in pays if pay.mean > _NEAR_ZERO * top]
    if not paid:
        return
    total = sum(pay.episodes for pay in pays)
    mean = sum(pay.mean * pay.episodes for pay in pays) / total
    names = ", ".join(repr(pay.family) for pay in paid)
    if mean > _HALF * top:
        yield (
            f"{message} pays {mean:.3f} on average, more than half of {top:g}, for "
            f"tasks without a known plan: {names}"
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
    """Return the share of the full reward that an episode's calls deserve, 0..1.

    A right solution earns the full reward. The share is the number of needed calls that
    were made, divided by the number of all needed calls. It is halved if other tools
    were called too, since a scenario may penalise this. If the task needs no call, the
    share is 1 without a call and 0 with any call. None if the needed calls are unknown.
    """
    needed = examined.scenario.needed_calls(episode.task)
    if needed is None or episode.trajectory is None:
        return None
    made = episode.trajectory.get_tool_calls()
    others = {call.name for call in made} - set[str]().union(*(n.tools for n in needed))
    if not needed:
        return 0.0 if others else 1.0
    specs = {spec.name: spec for spec in examined.tools[episode.task.id]}
    left = list(made)
    for need in needed:
        for call in left:
            if need.accepts(call, specs.get(call.name), succeeded=True):
                left.remove(call)
                break
    share = (len(made) - len(left)) / len(needed)
    return _HALF * share if others else share
