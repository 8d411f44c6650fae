"""Patience with a machine that cannot be reached for a while."""

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


class Patience:
    """Connects again to one machine.

    Args:
        where: Its address.
        progress: Warned of broken connections.
        waits_s: Between attempts.
        meanwhile: What goes on there though it cannot be reached, as words.
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
        """Return one that waits long: the machine is known to be there."""
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
            heed: Called while waiting; what it raises ends that.

        Raises:
            UnreachableError: It took too long.
        """
        if self._waits_s:
            told = f"{broken} Trying again{self._meanwhile}."
            self._progress.warned([told])
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


class PatientShell:
    """Runs commands that may be run again, and does so after a broken connection.

    Args:
        shell: The way to the machine.
        patience: With its first answer; after that the machine is there.
    """

    def __init__(self, shell: Shell, patience: Patience) -> None:
        self.address = shell.address
        self._shell = shell
        self._patience = patience

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
                self._patience.connect(lambda: self._shell.run(":"), error)
                self._patience = self._patience.lasting()
            else:
                self._patience = self._patience.lasting()
                return said
