"""User ids for executions, one per zygote, reserved across processes of the machine.

``RLIMIT_NPROC`` counts, and the sweep kills, every process of a user id; so no two
zygotes may share one. A reservation is an abstract socket name: the kernel frees it
when its owner ends, however that happens.
"""

import socket

from agentgym.errors import SandboxError

FIRST_IDENTITY = 60600  # Unassigned by Debian and by systemd: 60578-61183.
IDENTITIES = 400


class IdentitySlot:
    """A reserved user id; also the group id of the same number.

    Raises:
        SandboxError: All of them are taken.
    """

    def __init__(self) -> None:
        self._lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        for identity in range(FIRST_IDENTITY, FIRST_IDENTITY + IDENTITIES):
            try:
                self._lock.bind(f"\0agentgym-sandbox-{identity}")
            except OSError:
                continue
            self.identity = identity
            return
        self._lock.close()
        raise SandboxError(
            f"All {IDENTITIES} sandbox user ids from {FIRST_IDENTITY} on are in use: "
            "close other runs, or lower `concurrency`."
        )

    def release(self) -> None:
        """Give the user id back."""
        self._lock.close()
