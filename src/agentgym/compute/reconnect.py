"""Reconnect: retry the connection to a machine for a limited time."""

import time
from collections.abc import Callable, Sequence
from typing import Self

from agentgym.compute.base import Address
from agentgym.compute.shell import Shell
from agentgym.errors import UnreachableError
from agentgym.evaluate.progress import Progress

LONG_S = (1.0, 2.0, 4.0, 8.0, *(15.0,) * 40)
"""Seconds between attempts to reconnect: ten minutes in total."""
SHORT_S = (1.0, 2.0)
"""Seconds between attempts if a failure loses nothing: on the user's own machine."""
_LOOK_S = 0.5
_TRIES = 3


class Reconnect:
    """Reconnects to one machine.

    Args:
        where: The machine's address.
        progress: Gets warnings about broken connections.
        waits_s: Seconds to wait before each attempt, one number per attempt.
        meanwhile: Text to add to the warning that a connection broke, e.g.
            ``; the training goes on``.
        require_machine: Called after each failed attempt; raises an error other than
            UnreachableError if the machine does not exist any more.
    """

    def __init__(
        self,
        where: Address,
        progress: Progress,
        waits_s: Sequence[float],
        meanwhile: str = "",
        require_machine: Callable[[], None] = lambda: None,
    ) -> None:
        self._where = where
        self._progress = progress
        self._waits_s = waits_s
        self._meanwhile = meanwhile
        self._require_machine = require_machine

    def lasting(self) -> Self:
        """Return a copy that retries for ten minutes, for a machine that answered."""
        where, progress, check = self._where, self._progress, self._require_machine
        return type(self)(where, progress, LONG_S, self._meanwhile, check)

    def connect(
        self,
        connect: Callable[[], object],
        broken: UnreachableError,
        heed: Callable[[], None] = lambda: None,
    ) -> None:
        """Call ``connect`` until it succeeds.

        Args:
            connect: Raises UnreachableError while there is no connection.
            broken: The error of the connection that broke.
            heed: Called while waiting; may raise an error to stop.

        Raises:
            UnreachableError: All attempts failed.
        """
        if self._waits_s:
            message = f"{broken} Trying again{self._meanwhile}."
            self._progress.warned([message])
        error = broken
        for wait_s in self._waits_s:
            until = time.monotonic() + wait_s
            while (left := until - time.monotonic()) > 0:
                heed()
                time.sleep(min(left, _LOOK_S))
            heed()
            try:
                connect()
            except UnreachableError as found:
                error = found
                self._require_machine()
                continue
            self._progress.warned([f"Connected to {self._where} again."])
            return
        raise error


class RetryingShell:
    """Runs commands, and runs them again after a broken connection.

    Args:
        shell: Runs commands on the machine.
        reconnect: Limits the wait for the first connection. A later wait may take ten
            minutes.
    """

    def __init__(self, shell: Shell, reconnect: Reconnect) -> None:
        self.address = shell.address
        self._shell = shell
        self._reconnect = reconnect

    def run(self, command: str, *, data: bytes = b"", timeout_s: float = 60.0) -> str:
        """Run a command, again if the connection broke; return its output.

        The command must be safe to run twice. Arguments and errors are those of
        :meth:`~agentgym.compute.shell.Shell.run`.
        """
        tries = 1
        while True:
            try:
                said = self._shell.run(command, data=data, timeout_s=timeout_s)
            except UnreachableError as error:
                if tries == _TRIES:
                    raise
                tries += 1
                self._reconnect.connect(lambda: self._shell.run(":"), error)
                self._reconnect = self._reconnect.lasting()
            else:
                self._reconnect = self._reconnect.lasting()
                return said
