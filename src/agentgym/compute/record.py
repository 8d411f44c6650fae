"""``machine.json`` in a run's folder: which machine is rented for it, without secrets.

It is written before the machine is asked for, so that a machine whose client died is
known by its name.
"""

import json
import os
import socket
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Self

from agentgym.compute.base import Machine, MachineState
from agentgym.core.files import write_json
from agentgym.errors import ComputeError

FILE = "machine.json"
Fate = Literal["asked", "unclear", "rented", "ended", "never", "left"]
"""What became of a machine: ``never`` came to be, or is ``left`` and may cost money."""


@dataclass(frozen=True)
class MachineRecord:
    """What is known of a run's machine.

    Attributes:
        name: The machine's, by which it is found.
        provider: Whose.
        fate: What became of it.
        kind: The provider's name of what was asked for; ``gpu`` the people's.
        region: Where, empty if the provider chose.
        id: The provider's, empty as long as it is not known.
        address: Of its SSH server, empty before it has one.
        quoted: $ an hour that were agreed on.
        hourly: $ an hour that it really costs; that quoted before this is known.
        limit: $ after which it is ended.
        asked: When it was asked for.
        ended: When it was gone, empty before.
        why: Why it ended, or could not be had.
        before: $ that earlier machines of this run cost.
        tried: Offers that could not be had, with the reasons.
        host: Of the client, with its ``process``.
    """

    name: str
    provider: str
    fate: Fate = "asked"
    kind: str = ""
    gpu: str = ""
    region: str = ""
    id: str = ""
    address: str = ""
    quoted: float = 0.0
    hourly: float = 0.0
    limit: float | None = None
    asked: str = ""
    ended: str = ""
    why: str = ""
    before: float = 0.0
    tried: tuple[str, ...] = ()
    host: str = field(default_factory=socket.gethostname)
    process: int = field(default_factory=os.getpid)

    @property
    def spent(self) -> float:
        """$ from when it was asked for to its end, or to now.

        Providers bill from when it started, so that a bill is a little lower.
        """
        if not self.asked or self.fate == "never":
            return 0.0
        end = datetime.fromisoformat(self.ended) if self.ended else _now()
        seconds = (end - datetime.fromisoformat(self.asked)).total_seconds()
        return max(0.0, seconds) * self.hourly / 3600

    @property
    def machine(self) -> Machine:
        """The machine that it speaks of, wherever it is now."""
        state = MachineState.GONE if self.fate == "ended" else MachineState.STARTING
        return Machine(
            self.provider, self.id, self.name, state, hourly=self.hourly or self.quoted
        )

    def words(self) -> str:
        """Return in a sentence what became of the machine, and of the money."""
        what = f"{self.provider}'s {self.gpu or 'machine'} ({self.name})"
        cost = f"${self.spent:.2f}"
        return {
            "asked": f"{what} was asked for; what became of it is not recorded.",
            "unclear": f"{what} may or may not be there: nobody answered.",
            "rented": f"{what} is rented and has cost {cost} so far.",
            "ended": f"{what} is ended. It cost about {cost}.",
            "never": f"{what} never came to be. It cost nothing.",
            "left": f"{what} COULD NOT BE ENDED and may go on to cost "
            f"${self.hourly:.2f} an hour.",
        }[self.fate]

    def changed(self, **changes: Any) -> Self:
        """Return a copy with ``changes``."""
        return replace(self, **changes)

    def write(self, folder: Path) -> Self:
        """Write it into a run's folder, durably and as a whole."""
        write_json(folder / FILE, {**asdict(self), "spent": round(self.spent, 4)})
        return self

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Return the record in a run's folder; None if there is none.

        Raises:
            ComputeError: It cannot be read.
        """
        path = folder / FILE
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            del found["spent"]
            found["tried"] = tuple(found["tried"])
            return cls(**found)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, LookupError) as error:
            raise ComputeError(
                f"{path} cannot be read: {error!r}. Look at your provider's own list "
                "for the machine of this run."
            ) from None


def now() -> str:
    """Return the time as records have it."""
    return _now().isoformat(timespec="milliseconds")


def _now() -> datetime:
    return datetime.now().astimezone()
