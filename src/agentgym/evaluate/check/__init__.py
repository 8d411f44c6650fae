"""Tripwires: tests that find faults of a scenario before you train on it.

A tripwire is a function that gets an :class:`Examination` and yields the problems that
it finds, as texts, and a ``Note`` for a remark that is not a problem.
``check_scenario`` runs all of them.
"""

from collections.abc import Callable, Iterator

from agentgym.errors import ScenarioError
from agentgym.evaluate.check import repeats, tripwires
from agentgym.evaluate.check.examination import Examination, Finding, Note
from agentgym.scenarios.registry import get_scenario

__all__ = ["Examination", "Finding", "check_scenario", "run_tripwire"]

_MOST_SHOWN = 4
Tripwire = Callable[[Examination], Iterator[str | Note]]
TRIPWIRES: dict[str, tuple[Tripwire, str]] = {
    "card": (tripwires.card, "attributes and limits make sense"),
    "tools": (tripwires.tools, "named, described and typed"),
    "tasks": (tripwires.tasks, "every split has as many as are asked for"),
    "rollouts": (tripwires.episodes, "no tool crashed on any arguments"),
    "rewards": (tripwires.rewards, "in range; success is paid best"),
    "answer": (tripwires.answer, "the reward reads no text that is not trained"),
    "do-nothing": (tripwires.do_nothing, "earns nothing"),
    "call-everything": (tripwires.call_everything, "earns nothing but by luck"),
    "code": (tripwires.code, "own tests and tidy files earn nothing"),
    "oracle": (tripwires.oracle, "the scenario's needed calls succeed"),
    "splits": (tripwires.splits, "share no task, request or declared word"),
    "determinism": (repeats.determinism, "a seed means the same everywhere"),
    "isolation": (repeats.isolation, "rollouts share nothing"),
    "prompts": (tripwires.prompts, ""),
}
"""For each tripwire (a test of a scenario), its function and its success message."""
_OF_CHECKS = ("rewards", "do-nothing", "call-everything", "oracle")
"""Tripwires that are skipped if only a judge model decides which attempts are right."""


def check_scenario(reference: str, *, tasks: int = 60, seed: int = 0) -> list[Finding]:
    """Run every tripwire (a test that finds faults) on a scenario."""
    try:
        scenario = get_scenario(reference).rehearsal()
    except ScenarioError as error:
        return [Finding("load", "fail", str(error))]
    examined = Examination(reference, scenario, tasks, seed)
    loaded = Finding("load", "pass", type(scenario).__name__)
    try:
        return [loaded, *(run_tripwire(name, examined) for name in TRIPWIRES)]
    finally:
        scenario.close()


def run_tripwire(name: str, examined: Examination) -> Finding:
    """Run one of the ``TRIPWIRES``; report an exception as a failure."""
    tripwire, passed = TRIPWIRES[name]
    if name in _OF_CHECKS and not examined.scenario.has_check:
        return Finding(name, "skip", "no check judges attempts, a model ranks them")
    try:
        said = list(tripwire(examined))
    except Exception as error:  # noqa: BLE001 - the scenario's own code
        return Finding(name, "fail", f"it raised {type(error).__name__}: {error}")
    wrong = [each for each in said if isinstance(each, str)]
    remarks = [each for each in said if isinstance(each, Note)]
    if not wrong:
        return Finding(name, *(remarks[0] if remarks else ("pass", passed)))
    more = len(wrong) - _MOST_SHOWN
    also = f"; and {more} more" if more > 0 else ""
    return Finding(name, "fail", "; ".join(wrong[:_MOST_SHOWN]) + also)
