"""MachineRecord: ``machine.json`` in a run's folder, about its rented machine.

It has no secrets. It is written before the launch, so that a machine can be found by
name if the client dies.
"""

import math
import os
import shutil
import socket
import subprocess
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Self

from agentgym.compute.base import Machine, MachineState
from agentgym.core.files import parse_json, write_json
from agentgym.errors import ComputeError
from agentgym.security.audit import MACHINES_FILE, AuditLog

FILE = "machine.json"
_NOTED = ("name", "provider", "fate", "kind", "id", "region", "hourly", "limit", "why")
KEY_FILE = "machine_key"
"""Private SSH key of the machine, in the run's folder while the machine exists."""
ALONE_S = 3_000.0
"""Most seconds that a machine exists after its watchdog lost the client's heartbeat."""
Fate = Literal["asked", "unclear", "rented", "ended", "taken", "gone", "never", "left"]
"""A machine's state; ``never``: it was not created; ``left``: it may cost money.

A machine that is ``gone`` no longer existed when its provider was asked; one that was
``taken`` was a spot machine that its provider took away."""
_OPEN = ("asked", "unclear", "rented", "left")


@dataclass(frozen=True)
class MachineRecord:
    """The known facts about a run's machine.

    Attributes:
        name: The machine's name, by which it is found.
        provider: Name of its provider.
        fate: Its state, or how it ended.
        kind: The provider's name of the machine type; ``gpu`` is the common one.
        region: Its region, empty if the provider chose.
        id: The provider's id, empty while unknown.
        address: Address of its SSH server, empty until it has one.
        quoted: The agreed price per hour, in $.
        hourly: The real price per hour, in $; the quoted one until it is known. Of a
            spot machine, the highest one that it may come to.
        limit: $ at which it is ended.
        asked: Time of the launch.
        ended: Time when it was gone, empty before; an upper bound if its fate is
            ``gone``.
        seen: Time of the client's last heartbeat.
        guarded: Whether it ends itself once the client's heartbeats stop.
        why: Why it ended, or could not be rented.
        before: $ that earlier machines of this run cost.
        is_spot: Whether it was rented as a spot machine.
        taken: Number of earlier machines of this run that were taken away.
        tried: Unavailable offers, with the reasons.
        host: Host of the client; ``process`` is its process id.
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
    tried: tuple[str, ...] = ()
    host: str = field(default_factory=socket.gethostname)
    process: int = field(default_factory=os.getpid)

    @property
    def spent(self) -> float:
        """$ from the launch to the end, or to now.

        Providers bill from the start of the machine, so the bill is a little lower.
        """
        if not self.asked or self.fate == "never":
            return 0.0
        end = datetime.fromisoformat(self.ended) if self.ended else _now()
        seconds = (end - datetime.fromisoformat(self.asked)).total_seconds()
        return max(0.0, seconds) * self.hourly / 3600

    @property
    def total(self) -> float:
        """$ for all machines of the run so far."""
        return self.before + self.spent

    @property
    def times_taken(self) -> int:
        """Number of machines of the run that were taken away, this one included."""
        return self.taken + (self.fate == "taken")

    @property
    def age_s(self) -> float:
        """Seconds since the launch."""
        if not self.asked:
            return 0.0
        return (_now() - datetime.fromisoformat(self.asked)).total_seconds()

    @property
    def is_open(self) -> bool:
        """Whether the machine may still exist, and cost money."""
        return self.fate in _OPEN

    @property
    def machine(self) -> Machine:
        """The machine in this record, whatever its state."""
        state = MachineState.STARTING if self.is_open else MachineState.GONE
        return Machine(
            self.provider, self.id, self.name, state, hourly=self.hourly or self.quoted
        )

    def billed(self, machine: Machine) -> float:
        """Return the highest possible price per hour, in $, for a machine.

        It may be undocumented whether a provider's figure includes the disk. A figure
        equal to the quote, with or without the disk, confirms the quote; the disk is
        added to any other. Without a figure, the known price is returned.
        """
        reported, disk = machine.hourly, machine.disk_hourly
        if not (math.isfinite(reported) and reported > 0):
            return self.hourly or self.quoted
        for agreed in (self.quoted, self.quoted - disk):
            if math.isclose(reported, agreed, abs_tol=5e-4):
                return self.quoted
        return reported + disk

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
        """Return a copy with ``changes``."""
        return replace(self, **changes)

    def found_gone(self) -> Self:
        """Return the record of a machine that its provider no longer lists.

        Its watchdog ended it, if it had one by then: at the limit at the latest, or
        some time after the client's last heartbeat.
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
        return self.changed(fate="gone", ended=_written(min(latest)))

    def write(self, folder: Path) -> Self:
        """Write it into a run's folder, durably and atomically.

        A changed fate is logged in the run's audit log.
        """
        if _fate_in(folder) != (self.name, self.fate):
            known = {n: v for n, v in asdict(self).items() if n in _NOTED and v}
            AuditLog(folder / MACHINES_FILE).write("machine", **known)
        write_json(folder / FILE, {**asdict(self), "spent": round(self.spent, 4)})
        return self

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Read the record in a run's folder, or return None.

        Raises:
            ComputeError: It cannot be read.
        """
        path = folder / FILE
        try:
            found = parse_json(path.read_text(encoding="utf-8"))
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


def bill(folder: Path) -> str:
    """Describe a run's rented machine, its cost, and whether it may cost more.

    Empty if none was rented. For an unreadable record, the sentence says so.
    """
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


def _fate_in(folder: Path) -> tuple[str, str] | None:
    """Return the name and the fate in the record on disk."""
    try:
        found = parse_json((folder / FILE).read_text(encoding="utf-8"))
        return found["name"], found["fate"]
    except (OSError, ValueError, LookupError, TypeError):
        return None


def now() -> str:
    """Return the current time in the records' format."""
    return _written(_now())


def make_key(path: Path) -> str:
    """Write a new private key for this user only; return the public key.

    Raises:
        ComputeError: OpenSSH is missing.
    """
    tool = shutil.which("ssh-keygen")
    if tool is None:
        raise ComputeError(
            "ssh-keygen is not installed, and a machine elsewhere is reached over SSH. "
            "Install OpenSSH's client (Debian, Ubuntu: apt install openssh-client)."
        )
    public = path.with_suffix(".pub")
    for old in (path, public):
        old.unlink(missing_ok=True)
    words = [tool, "-q", "-t", "ed25519", "-N", "", "-C", "agentgym", "-f", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ComputeError(f"ssh-keygen failed: {done.stderr.strip()}")
    path.chmod(0o600)
    return public.read_text().strip()


def remove_key(folder: Path) -> None:
    """Remove the key of a deleted machine from its run's folder."""
    with suppress(OSError):
        for name in (KEY_FILE, f"{KEY_FILE}.pub"):
            (folder / name).unlink(missing_ok=True)


def _written(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")


def _now() -> datetime:
    return datetime.now().astimezone()
