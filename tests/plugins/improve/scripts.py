"""Rungs with a script, and what a ladder of them climbs."""

from collections.abc import Callable
from pathlib import Path

from agentgym.core.config import TrainingConfig
from agentgym.evaluate.criteria import Gate
from agentgym.evaluate.events import Observer, silent
from agentgym.evaluate.metrics import Metrics, TaskResult
from agentgym.plugins.improve.bill import Bill
from agentgym.plugins.improve.rungs import Climb, LadderRung, Outcome, Price
from agentgym.plugins.improve.terms import Terms
from agentgym.rollout.gateway.metered import Purse

FREE = Price("on this machine, $0.00.")


def solved(tasks: int, of: int = 10) -> Metrics:
    """Return the metrics of so many solved held-out tasks."""
    made = [
        TaskResult(
            task_id=f"t{n}",
            attempts=1,
            successes=n < tasks,
            sums={"pass_1": (n < tasks, 1.0)},
        )
        for n in range(of)
    ]
    return Metrics.of_tasks(made, k=1)


class Scripted(LadderRung):
    """A rung that does what it was made for, and counts how often."""

    def __init__(
        self,
        name: str,
        does: Callable[[Climb], Outcome],
        *,
        price: Price = FREE,
        skipped: str = "",
    ) -> None:
        self.name = name
        self._does, self._price, self._skipped = does, price, skipped
        self.ran = self.restored = 0

    def skipped(self, climb: Climb) -> str:
        return self._skipped

    def price(self, climb: Climb) -> Price:
        return self._price

    def run(self, climb: Climb) -> Outcome:
        self.ran += 1
        return self._does(climb)

    def restore(self, climb: Climb) -> None:
        self.restored += 1


def reaches(tasks: int) -> Callable[[Climb], Outcome]:
    """Return what a rung does after which so many of ten tasks are solved."""
    return lambda climb: Outcome("done.", solved(tasks))


def climb_in(
    folder: Path,
    *,
    goal: float = 0.8,
    cap: float = 0.0,
    yes: bool = False,
    progress: Observer = silent,
) -> Climb:
    """Return the climb of a ladder in a folder, which goes on if it has a bill."""
    terms = Terms(Gate("pass_1", goal), max_cost=cap, yes=yes)
    bill = Bill.open(folder, f"pass_1={goal:g}", cap, "nano")
    purse = Purse(cap, bill.dollars)
    return Climb(TrainingConfig.create(), terms, purse, bill, progress)
