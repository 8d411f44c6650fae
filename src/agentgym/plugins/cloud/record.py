"""MachineRecord: the file ``machine.json`` in a run's folder, about its rented machine.

The file contains no secrets. It is written before the launch, so that the machine can
be found by its name if the client dies.
"""

import math
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Self

from agentgym.core.files import parse_json, write_json
from agentgym.errors import ComputeError
from agentgym.plugins.cloud.base import Machine, MachineState
from agentgym.security.audit import MACHINES_FILE, AuditLog

FILE = "machine.json"
_NOTED = ("name", "provider", "fate", "kind", "id", "region", "hourly", "limit", "why")
ALONE_S = 3_000.0
"""Longest time from the last heartbeat until a machine has ended itself, in seconds."""
Fate = Literal["asked", "unclear", "rented", "ended", "taken", "gone", "never", "left"]
"""State of a rented machine.

``asked``: the launch has no answer yet. ``unclear``: the launch's answer was lost.
``rented``: it was launched. ``ended``: AgentGym ended it. ``taken``: the provider took
the spot machine away. ``gone``: the provider does not list it any more. ``never``: it
was not created. ``left``: it could not be ended, and may cost money."""
_OPEN = ("asked", "unclear", "rented", "left")


@dataclass(frozen=True)
class MachineRecord:
    """The content of ``machine.json``: the known facts about a run's rented machine.

    Attributes:
        kind: The provider's name for the machine type.
        quoted: The price per hour in $ that the user agreed to.
        hourly: The price per hour in $ that is billed. Until it is known, ``quoted``
            or, for a spot machine, the highest price to which it may rise.
        limit: Cost in $ at which the machine is ended; None for no limit.
        asked: Time of the launch request, in ISO 8601; empty before.
        ended: Time when the machine ended. If the fate is ``gone``, the latest possible
            time.
        seen: Time of the client's last heartbeat.
        guarded: Whether the machine ends itself after the client's heartbeats stop.
        before: Cost in $ of the run's earlier machines, of which ``taken`` were taken
            away by the provider.
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
    seen: str = ""
    guarded: bool = False
    why: str = ""
    before: float = 0.0
    is_spot: bool = False
    taken: int = 0

    @property
    def spent(self) -> float:
        """This machine's cost in $, from the launch request until its end or now."""
        if self.fate == "never":
            return 0.0
        return max(0.0, self.age_s) * self.hourly / 3600

    @property
    def total(self) -> float:
        """Cost in $ so far of this machine and the run's earlier machines."""
        return self.before + self.spent

    @property
    def times_taken(self) -> int:
        """Number of the run's machines, with this one, that the provider took away."""
        return self.taken + (self.fate == "taken")

    @property
    def age_s(self) -> float:
        """Seconds from the launch request until the machine's end or now."""
        if not self.asked:
            return 0.0
        end = datetime.fromisoformat(self.ended) if self.ended else _now()
        return (end - datetime.fromisoformat(self.asked)).total_seconds()

    @property
    def is_open(self) -> bool:
        """Whether the machine may still exist, and cost money."""
        return self.fate in _OPEN

    @property
    def machine(self) -> Machine:
        """The recorded machine, as if it had just been launched."""
        return Machine(self.provider, self.id, self.name, MachineState.STARTING)

    def billed(self, machine: Machine) -> float:
        """Return the highest price per hour in $ that may be billed for ``machine``."""
        if not (math.isfinite(machine.hourly) and machine.hourly > 0):
            return self.hourly or self.quoted
        # Not every provider documents whether its price includes the disk.
        if machine.hourly <= self.quoted + 5e-4:
            return self.quoted
        return machine.hourly + machine.disk_hourly

    def words(self) -> str:
        """Return a sentence on the machine's state and cost."""
        what = f"{self.provider}'s {self.gpu or 'machine'} ({self.name})"
        cost = f"${self.spent:.2f}"
        about = f"about {cost}"
        if self.is_spot and self.quoted < self.hourly:
            least = self.spent * self.quoted / self.hourly
            about = f"${least:.2f} at the price it was rented for, at most {cost}"
        return {
            "asked": f"{what} was asked for; the outcome is not recorded.",
            "unclear": f"{what} may or may not exist: there was no answer.",
            "rented": f"{what} is rented and has cost {cost} so far.",
            "ended": f"{what} is ended. It cost {about}.",
            "taken": f"{what} was taken away by its provider. It cost {about}.",
            "gone": f"{what} is gone, since when is not known. It cost at most {cost}.",
            "never": f"{what} was never created. It cost nothing.",
            "left": f"{what} COULD NOT BE ENDED and may go on to cost "
            f"${self.hourly:.2f} an hour.",
        }[self.fate]

    def changed(self, **changes: Any) -> Self:
        """Return a copy of this record with new values for some fields."""
        return replace(self, **changes)

    def found_gone(self) -> Self:
        """Return a copy for a machine that its provider does not list any more.

        Its ``fate`` is ``gone``, or ``never`` if the machine has no id. Its ``ended``
        is the latest possible time: now or, if ``guarded``, the earlier time at which
        the machine must have ended itself. This is the time when the cost limit was
        reached, or :data:`ALONE_S` seconds after the last heartbeat.
        """
        if not self.id:
            return self.changed(fate="never")
        latest = [_now()]
        if self.guarded and self.seen:
            seen = datetime.fromisoformat(self.seen)
            latest.append(seen + timedelta(seconds=ALONE_S))
        if self.guarded and self.limit is not None and self.hourly:
            paid = timedelta(hours=self.limit / self.hourly)
            latest.append(datetime.fromisoformat(self.asked) + paid)
        return self.changed(fate="gone", ended=now(min(latest)))

    def write(self, folder: Path) -> Self:
        """Write this record into a run's folder atomically, and return it."""
        old = None
        with suppress(ComputeError):
            old = self.read(folder)
        if old is None or (old.name, old.fate) != (self.name, self.fate):
            known = {n: v for n, v in asdict(self).items() if n in _NOTED and v}
            AuditLog(folder / MACHINES_FILE).write("machine", **known)
        write_json(folder / FILE, {**asdict(self), "spent": round(self.spent, 4)})
        return self

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Return the record in a run's folder; None if there is none."""
        path = folder / FILE
        try:
            found = parse_json(path.read_text(encoding="utf-8"))
            del found["spent"]
            return cls(**found)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, LookupError) as error:
            raise ComputeError(
                f"{path} cannot be read: {error!r}. Look at your provider's own list "
                "for the machine of this run."
            ) from None


def bill(folder: Path) -> str:
    """Describe a run's rented machine, its cost, and whether it may cost more."""
    try:
        record = MachineRecord.read(folder)
    except ComputeError as error:
        return str(error)
    if record is None:
        return ""
    message = record.words()
    if record.before:
        most = "at most " if record.is_spot else ""
        message += f" All machines of the run: {most}${record.total:.2f}."
    if times := record.times_taken:
        message += f" Machines were taken away {times} time{'s' * (times > 1)}."
    if record.is_open:
        message += " If no process follows the run, look with: agentgym gpu reap"
    return message


def machine_of(run: Path) -> dict[str, Any] | None:
    """Return a run's rented machine as values for a list of runs; None for none."""
    try:
        record = MachineRecord.read(run)
    except ComputeError:
        unknown = dict.fromkeys(("name", "provider", "cost", "taken_away"))
        return {**unknown, "open": True}
    if record is None:
        return None
    return {
        "name": record.name,
        "provider": record.provider,
        "cost": round(record.total, 2),
        "open": record.is_open,
        "taken_away": record.times_taken,
    }


def now(moment: datetime | None = None) -> str:
    """Return ``moment``, or the current time, in ISO 8601 with milliseconds."""
    return (moment or _now()).isoformat(timespec="milliseconds")


def _now() -> datetime:
    return datetime.now().astimezone()
