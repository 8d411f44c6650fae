"""``agentgym`` with an engine that a script answers for, and that a test lets end.

Called with what happens and when, ``update-2:SIGTERM`` or ``create-1:ValueError``, and
the command line. With ``nothing`` it has nothing to learn from.
"""

import builtins
import os
import signal
import sys

from agentgym import errors
from agentgym.cli.main import main
from agentgym.core.policy import ChatRequest
from agentgym.engines.base import TrainingBatch, UpdateMetrics
from agentgym.engines.scripted import Reply
from agentgym.evaluate import evaluation
from agentgym.train import loop
from tests.scripted_engine import ScriptedEngine


class Ending(ScriptedEngine):
    """Its n-th model call, update or creation ends it."""

    def __init__(self, when: str, what: str) -> None:
        super().__init__(self.respond)
        self.when, self.what = when, what
        self.calls = 0
        self.happen("create-1")

    def respond(self, request: ChatRequest) -> Reply:
        self.calls += 1
        if self.what.startswith("SIG"):  # an error here is a dropped rollout
            self.happen(f"call-{self.calls}")
        if self.what == "nothing":
            return Reply("Done.")
        if request.seed % 2 and request.messages[-1]["role"] == "user":
            return Reply(calls=[("list_files", {})])  # what attempts earn differs
        return Reply("Done.")

    def update(self, batch: TrainingBatch) -> UpdateMetrics:
        self.happen(f"update-{self.step + 1}")
        return super().update(batch)

    def happen(self, now: str) -> None:
        if now != self.when:
            return
        for name in self.what.split("+"):
            if name.startswith("SIG"):
                os.kill(os.getpid(), getattr(signal, name))
            else:
                kind = getattr(errors, name, None) or getattr(builtins, name)
                raise kind("so it is told")


def run() -> int:
    when, what = sys.argv[1].split(":")
    for module in (loop, evaluation):
        module.create_engine = lambda _: Ending(when, what)  # type: ignore[attr-defined]
    return main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(run())
