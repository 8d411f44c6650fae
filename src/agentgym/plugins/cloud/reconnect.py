"""Reconnect: retry the connection to a machine for a limited time."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentgym.errors import UnreachableError
from agentgym.evaluate.progress import Progress
from agentgym.plugins.cloud.base import Address
from agentgym.plugins.cloud.shell import Shell

LONG_S = (1.0, 2.0, 4.0, 8.0, *(15.0,) * 40)
"""Seconds between attempts to reconnect, ten minutes in total."""
SHORT_S = (1.0, 2.0)
"""Seconds between attempts on the user's own machine, where a failure loses nothing."""
_LOOK_S = 0.5
_TRIES = 3


@dataclass
class Reconnect:
    """Retries the connection to one machine for a limited time.

    Attributes:
        where: Address of the machine.
        progress: Gets warnings that the connection broke and was restored.
        waits_s: Seconds to wait before each attempt to connect. After the first
            success, this becomes :data:`LONG_S`, ten minutes in total.
        meanwhile: Text to add to the warning that a connection broke, e.g.
            ``; the training goes on``.
        require_machine: Called after each failed attempt. To end the attempts, since
            the machine does not exist any more, it raises an error.
    """

    where: Address
    progress: Progress
    waits_s: Sequence[float]
    meanwhile: str = ""
    require_machine: Callable[[], None] = lambda: None

    def connect(
        self,
        connect: Callable[[], object],
        broken: UnreachableError,
        heed: Callable[[], None] = lambda: None,
    ) -> None:
        """Call ``connect`` after each wait in ``waits_s`` until it succeeds."""
        if self.waits_s:
            self.progress.warned([f"{broken} Trying again{self.meanwhile}."])
        error = broken
        for wait_s in self.waits_s:
            until = time.monotonic() + wait_s
            while (left := until - time.monotonic()) > 0:
                heed()
                time.sleep(min(left, _LOOK_S))
            heed()
            try:
                connect()
            except UnreachableError as found:
                error = found
                self.require_machine()
                continue
            self.progress.warned([f"Connected to {self.where} again."])
            self.waits_s = LONG_S
            return
        raise error


class RetryingShell:
    """Runs commands over SSH, and runs them again after a broken connection.

    ``reconnect.waits_s`` limits the wait for the first connection. Later connections
    are retried for ten minutes.
    """

    def __init__(self, shell: Shell, reconnect: Reconnect) -> None:
        self.address = shell.address
        self._shell = shell
        self._reconnect = reconnect

    def run(self, command: str, *, data: bytes = b"", timeout_s: float = 60.0) -> str:
        """Run a command like :meth:`Shell.run`; if connections break, up to 3 times."""
        tries = 1
        while True:
            try:
                said = self._shell.run(command, data=data, timeout_s=timeout_s)
            except UnreachableError as error:
                if tries == _TRIES:
                    raise
                tries += 1
                self._reconnect.connect(lambda: self._shell.run(":"), error)
            else:
                self._reconnect.waits_s = LONG_S
                return said
