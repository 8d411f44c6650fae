"""NotebookProgress: show a run's progress below a notebook's cell."""

import sys
from typing import Any

from agentgym.core.ledger import Ledger
from agentgym.core.notebook import notebook_bar
from agentgym.evaluate.plain_progress import LinesProgress, step_shares
from agentgym.evaluate.progress import Plan, StepReport

_TRAINING = "rollouts"
"""The phase in which a training step makes its rollouts."""


class NotebookProgress(LinesProgress):
    """Writes a run's events as lines, with a bar for each phase and for all steps."""

    def __init__(self) -> None:
        super().__init__(sys.stdout)
        self._is_live = True
        self._bar: Any = None
        self._steps: Any = None  # the bar of all training steps
        self._budget = 0

    def write(self, line: str) -> None:
        """Write a line above the bars."""
        from tqdm import tqdm

        tqdm.write(line, file=sys.stdout)

    def planned(self, plan: Plan) -> None:
        """Write the plan of the run, and note its budget."""
        super().planned(plan)
        self._budget = plan.config.episodes

    def phase(self, name: str, total: int) -> None:
        """Begin the bar of a phase; all training steps have one bar."""
        super().phase(name, total)
        is_training = name == _TRAINING
        if self._steps is None:
            most = self._budget if is_training else total
            self._bar = notebook_bar(self._phase or name, most)
            self._steps = self._bar if is_training else None
        else:
            self._bar = self._steps if is_training else None

    def rollout_done(self) -> None:
        """Move the bar of the phase on."""
        super().rollout_done()
        if self._bar is None:
            return
        self._bar.update()
        if self._bar is not self._steps and self._bar.n >= self._bar.total:
            self._bar.close()

    def stepped(self, report: StepReport) -> None:
        """Show a step's figures next to the bar of training."""
        super().stepped(report)
        self._steps.n = report.episodes
        shares = ", ".join(map(" ".join, step_shares(report)))
        self._steps.set_postfix_str(f"step {report.step}, {shares}")

    def ended(self, reason: str, ledger: Ledger) -> None:
        """End the bar of training, and write why training ended."""
        if self._steps is not None:
            self._steps.total = self._steps.n
            self._steps.close()
            self._steps = None
        super().ended(reason, ledger)
