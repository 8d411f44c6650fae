"""An observer for tests: keeps the events, answers, and presses Ctrl-C."""

import os
import signal

from agentgym.evaluate import events


class Seen:
    """Keeps a run's events, and gives ``answer`` to each question.

    Presses Ctrl-C as the phase ``stop_at`` begins for the ``turn``-th time.
    """

    def __init__(
        self, answer: bool | None = None, stop_at: str = "", turn: int = 1
    ) -> None:
        self.answer = answer
        self.stop_at, self.turn = stop_at, turn
        self.events: list[events.Event] = []

    def __call__(self, event: events.Event) -> bool | None:
        self.events.append(event)
        if isinstance(event, events.PhaseStarted) and event.name == self.stop_at:
            self.turn -= 1
            if self.turn == 0:
                os.kill(os.getpid(), signal.SIGINT)
        return self.answer if isinstance(event, events.Question) else None

    def of[T](self, kind: type[T]) -> list[T]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def phases(self) -> list[str]:
        return [event.name for event in self.of(events.PhaseStarted)]

    @property
    def facts(self) -> list[str]:
        """What was shown before questions."""
        return [
            fact for question in self.of(events.Question) for fact in question.facts
        ]

    @property
    def texts(self) -> list[str]:
        """The texts of messages and warnings."""
        return [event.text for event in self.events if isinstance(event, _HAS_TEXT)]


_HAS_TEXT = events.Message | events.Warned
