"""Ctrl-C and SIGTERM as a flag that is checked where nothing is half done."""

import signal
import threading
from types import FrameType
from typing import Any, Self

from agentgym.errors import TrainingInterrupted

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class InterruptFlag:
    """While entered, the first signal sets a flag; a second one ends at once."""

    def __init__(self) -> None:
        self._set = False
        self._old: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._old[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    @property
    def requested(self) -> bool:
        """Whether a signal has come."""
        return self._set

    def check(self, run: str, step: int) -> None:
        """Raise if a signal has come.

        Raises:
            TrainingInterrupted: Says how to resume ``run`` after ``step``, the last
                one saved.
        """
        if self._set:
            raise TrainingInterrupted(run, step)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._set:
            raise KeyboardInterrupt
        self._set = True
