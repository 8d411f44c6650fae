"""Reconnect with a machine that cannot be reached for a while."""

import time
from collections.abc import Callable, Sequence
from typing import Self

from agentgym.compute.base import Address
from agentgym.compute.shell import Shell
from agentgym.errors import UnreachableError
from agentgym.evaluate.progress import Progress

LONG_S = (1.0, 2.0, 4.0, 8.0, *(15.0,) * 40)
"""Between attempts to connect again: ten minutes."""
SHORT_S = (1.0, 2.0)
"""Where nothing is lost if the user comes back later."""
_LOOK_S = 0.5
_TRIES = 3


class Reconnect:
    """Connects again to one machine.

    Args:
        where: Its address.
        progress: Warned of broken connections.
        waits_s: Between attempts.
        meanwhile: A clause on the work that goes on while it cannot be reached.
    """

    def __init__(
        self,
        where: Address,
        progress: Progress,
        waits_s: Sequence[float],
        meanwhile: str = "",
    ) -> None:
        self._where = where
        self._progress = progress
        self._waits_s = waits_s
        self._meanwhile = meanwhile

    def lasting(self) -> Self:
        """Return one that waits long: the machine is known to exist."""
        return type(self)(self._where, self._progress, LONG_S, self._meanwhile)

    def connect(
        self,
        connect: Callable[[], object],
        broken: UnreachableError,
        heed: Callable[[], None] = lambda: None,
    ) -> None:
        """Call ``connect`` until it succeeds.

        Args:
            connect: Raises UnreachableError while there is no connection.
            broken: Why it is needed.
            heed: Called while waiting; an exception that it raises ends the waiting.

        Raises:
            UnreachableError: It took too long.
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
                continue
            self._progress.warned([f"Connected to {self._where} again."])
            return
        raise error


class RetryingShell:
    """Runs commands that may be run again, and does so after a broken connection.

    Args:
        shell: The way to the machine.
        reconnect: Limits the wait for the first answer; later waits are long.
    """

    def __init__(self, shell: Shell, reconnect: Reconnect) -> None:
        self.address = shell.address
        self._shell = shell
        self._reconnect = reconnect

    def run(self, command: str, *, data: bytes = b"", timeout_s: float = 60.0) -> str:
        """Run a command; see :meth:`~agentgym.compute.shell.Shell.run`."""
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
