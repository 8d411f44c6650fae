"""Lease: rent a machine for a ``with`` block, and end it afterwards."""

import math
import secrets
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from agentgym.errors import (
    AgentGymError,
    ComputeError,
    Interrupted,
    LimitReached,
    MachineTakenError,
    NoCapacityError,
    UnclearLaunchError,
)
from agentgym.plugins.cloud.base import (
    NAME_PREFIX,
    Address,
    Machine,
    MachineState,
    Offer,
    Provider,
    in_cents,
)
from agentgym.plugins.cloud.record import MachineRecord, now
from agentgym.plugins.cloud.signals import DeferredSignals

KEY_FILE = "machine_key"
"""Private SSH key of the machine, in the run's folder while the machine exists."""
SILENT_S = 1800.0
"""Seconds without the client's heartbeat after which a machine ends itself."""
TRIES = 4
"""Most offers to try in turn if GPUs are sold out."""
_AWAY = (MachineState.STOPPED, MachineState.GONE)
_SLACK = 1.1
"""Without ``max_hourly``, a machine may cost this multiple of the agreed price."""
_RESERVE_S = 300.0
"""Paid time to reserve for stopping training and fetching files."""
_PATIENCE = 3
"""Number of signals, e.g. Ctrl-C, that stop the current step of the clean-up: fetching
the machine's files, or ending the machine."""
_BEAT_S = 30.0
_NAME_CHARACTERS = 40


@dataclass(frozen=True)
class Waits:
    """Timeouts and intervals in seconds for renting and ending machines.

    Attributes:
        look_s: Interval between two reads of a provider's list of machines.
        looks: Number of times (not seconds) to read the list in search of a machine,
            since a provider may list a new machine late.
        up_s: Longest wait until a machine runs and its SSH server answers.
        end_s: Longest wait until an ended machine does not exist any more. Some
            providers refuse to end a machine that boots.
        fetch_s: Longest time to fetch finished files before a machine is ended.
    """

    look_s: float = 5.0
    looks: int = 12
    up_s: float = 900.0
    end_s: float = 1800.0
    fetch_s: float = 300.0


def find(provider: Provider, name: str, waits: Waits) -> Machine | None:
    """Find the machine ``name`` in the provider's list; None if it is not listed."""
    for look in range(waits.looks):
        time.sleep(waits.look_s if look else 0.0)
        try:
            listed = provider.machines()
        except ComputeError:
            if look == waits.looks - 1:
                raise
            continue
        for machine in listed:
            if machine.name == name:
                return machine
    return None


def end(
    provider: Provider,
    machine: Machine,
    waits: Waits,
    report: Callable[[str], None] = lambda words: None,
) -> None:
    """Delete ``machine`` and all machines of the same name; wait until none exists.

    Then call :meth:`Provider.forget`, which deletes e.g. the machine's SSH key. A
    machine without an id is found by its name. ``report`` is called with a sentence if
    it takes long.
    """
    if not machine.name.startswith(NAME_PREFIX):
        raise ComputeError(
            f"{machine.name!r} does not begin with {NAME_PREFIX!r}: it is none of "
            "AgentGym's machines, and is left alone."
        )
    begun = time.monotonic()
    for look in range(10**9):
        try:
            problem = _end_once(provider, machine)
        except ComputeError as error:
            problem = str(error)
        if not problem:
            provider.forget(machine.name)
            return
        if time.monotonic() >= begun + waits.end_s:
            raise ComputeError(problem)
        if look == 3:
            minutes = waits.end_s / 60
            report(f"{problem} Trying to end it for {minutes:.0f} minutes.")
        time.sleep(waits.look_s)


def _end_once(provider: Provider, machine: Machine) -> str:
    """Ask the provider to delete machines of this name; return the problem, if any."""
    if machine.id:
        provider.terminate(machine)
    same = [each for each in provider.machines() if each.name == machine.name]
    for other in same:
        if other.id != machine.id:
            provider.terminate(other)
    if same:
        return f"{provider.name} still lists {machine.name}."
    state = provider.describe(machine).state if machine.id else MachineState.GONE
    if state is MachineState.GONE:
        return ""
    return f"{provider.name} says that {machine.name} is {state.value}."


@dataclass(eq=False)
class Lease:
    """Rents a machine, the first available of several offers, for a ``with`` block.

    ::

        with Lease(provider, offers, folder, limit=5.0) as lease:
            train(lease.address, lease.key_file)

    After the block, also after an error, the machine is ended, and the exit waits until
    the provider no longer lists it. After an error, the machine's files are fetched
    first, within a time limit.

    Ctrl-C, SIGTERM and SIGHUP raise KeyboardInterrupt in the block, but a launch in
    progress is completed first. After the block, three such signals stop the fetching
    of files. Three more stop the ending of the machine, which may then continue to
    exist and to cost money.

    Attributes:
        folder: The run's folder. It gets the record ``machine.json`` and, while the
            machine exists, the machine's SSH key.
        max_hourly: Highest price in $ per hour that may be billed for the machine. If
            None, the offered price plus a tenth.
        limit: Cost of this machine in $ at which the block is interrupted.
        earlier: The record of the run's earlier machine, whose cost counts too.
        held: A machine that the run has already rented, which is ``earlier``'s. If
            given, it is used, and none is rented.
        rescue: Fetches the machine's files after an error in the block.
        lost: Why some of the machine's files were not fetched; empty if all were.
        outcome: Sentences on the machine's end and cost, and on files that are lost.

    Raises:
        NoCapacityError: None of the offered machines is available.
        MachineTakenError: The provider took a spot machine away before it could be
            used.
        LimitReached: The cost reached ``limit``, and the block was interrupted.
        ComputeError: The machine costs more than is allowed, never started, or could
            not be ended.
    """

    provider: Provider
    offers: Sequence[Offer]
    folder: Path
    _: KW_ONLY
    max_hourly: float | None = None
    limit: float | None = None
    earlier: MachineRecord | None = None
    held: Machine | None = None
    report: Callable[[str], None] = lambda words: None
    waits: Waits = field(default_factory=Waits)
    rescue: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.lost = self.outcome = ""
        self.key_file = self.folder / KEY_FILE
        self._machine, earlier = self.held, self.earlier
        if self.held and earlier:
            self.record = earlier.changed(
                fate="rented", id=self.held.id, limit=self.limit
            )
        else:
            self.record = MachineRecord(
                name=_new_name(self.folder),
                provider=self.provider.name,
                fate="never",
                limit=self.limit,
                before=earlier.total if earlier else 0.0,
                taken=earlier.times_taken if earlier else 0,
            )
        self._signals = DeferredSignals()
        self._left = threading.Event()
        self._writing = threading.Lock()
        self._is_over_limit = False

    @property
    def address(self) -> Address:
        """Address of the machine's SSH server; available inside the block."""
        assert self._machine is not None
        assert self._machine.address is not None
        return self._machine.address

    def ending(self) -> dict[str, Any] | None:
        """Return the request with which the machine ends itself, and when it does so.

        None if the machine cannot do so.
        """
        assert self._machine is not None
        request = self.provider.ending(self._machine)
        if request is None:
            return None
        self._write(guarded=True)
        return {**asdict(request), "ends_s": self.seconds_left(), "silent_s": SILENT_S}

    def seconds_left(self, reserve_s: float = 0.0) -> float | None:
        """Return the seconds until the machine's cost reaches the limit.

        ``reserve_s`` is subtracted, but at most half of all paid time. None without a
        limit, or if the price is unknown.
        """
        if self.limit is None or not self.record.hourly:
            return None
        paid_s = self.limit / self.record.hourly * 3600
        spent_s = self.record.spent / self.record.hourly * 3600
        return max(0.0, paid_s - min(reserve_s, paid_s / 2) - spent_s)

    def require_machine(self, is_lost: bool) -> None:
        """Raise MachineTakenError if the provider has taken this spot machine away.

        Set ``is_lost`` if the machine cannot be used any more; then the provider is
        asked several times, since it may report the new state late, and a stopped
        machine counts as taken away. A provider that does not answer says nothing.
        """
        if not self.record.is_spot:
            return
        for look in range(self.waits.looks if is_lost else 1):
            time.sleep(self.waits.look_s if look else 0.0)
            state = MachineState.RUNNING
            with suppress(ComputeError):
                state = self.provider.describe(self.record.machine).state
            if state is MachineState.GONE or (is_lost and state in _AWAY):
                raise MachineTakenError(f"{self.record.name} was taken away.")

    def __enter__(self) -> Self:
        self._signals.install()
        try:
            if self._machine is None:
                self._launch(_make_key(self.key_file))
            self._wait_until_up()
            threading.Thread(target=self._watch, daemon=True).start()
        except BaseException as error:
            self._leave(error)
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        self._leave(error)

    def _launch(self, public_key: str) -> None:
        """Launch the first available offer."""
        offers, tried = self.offers[:TRIES], list[str]()
        for offer in offers:
            self.report(
                f"Renting {offer.gpu}{offer.where} of {offer.provider} for "
                f"{offer.price}, as {self.record.name}."
            )
            try:
                with self._signals.deferred(
                    "The answer to the launch is awaited first"
                ):
                    self._write(
                        fate="asked",
                        kind=offer.kind,
                        gpu=offer.gpu,
                        region=offer.region,
                        quoted=offer.hourly,
                        hourly=offer.most_hourly,
                        is_spot=offer.is_spot,
                        asked=now(),
                    )
                    self._machine = self._asked(offer, public_key)
                    self._write(fate="rented", id=self._machine.id)
                return
            except NoCapacityError as error:
                tried.append(f"{offer.gpu}{offer.where}: {error}")
                self.report(f"Not available: {error}")
        raise NoCapacityError(
            f"None of {len(offers)} offers of {self.provider.name} is "
            f"available: {'; '.join(tried)} Try again later, or another provider."
        )

    def _asked(self, offer: Offer, public_key: str) -> Machine:
        """Launch a machine; if its answer is lost, look for the machine by its name."""
        try:
            return self.provider.launch(offer, self.record.name, public_key)
        except UnclearLaunchError as error:
            self._write(fate="unclear", why=str(error))
            self.report(f"{error} Looking for it by its name.")
            found = find(self.provider, self.record.name, self.waits)
            if found is None:
                raise UnclearLaunchError(
                    f"{error} {offer.provider} does not list {self.record.name}, and "
                    f"it may still come, for {offer.price}. Look again in some "
                    "minutes: agentgym gpu reap"
                ) from None
            self.report("It exists.")
            return found
        except AgentGymError:
            self._write(fate="never")
            raise

    def _wait_until_up(self) -> None:
        assert self._machine is not None
        begun = time.monotonic()
        listed_by = begun + self.waits.looks * self.waits.look_s
        while True:
            machine = self.provider.describe(self._machine)
            is_lagging = machine.state is MachineState.GONE
            if not (is_lagging and time.monotonic() < listed_by):
                self._machine = machine
                self._check_price(machine)
            is_running = machine.state is MachineState.RUNNING
            if machine.state in _AWAY and self._machine is machine:
                kind = MachineTakenError if self.record.is_spot else ComputeError
                raise kind(
                    f"{machine.name} is {machine.state.value} before it could be used."
                )
            if is_running and machine.address:
                self._write(address=str(machine.address))
                return
            if time.monotonic() >= begun + self.waits.up_s:
                lacks = "no address" if is_running else "not started"
                raise ComputeError(
                    f"{machine.name} has {lacks} after {self.waits.up_s / 60:.0f} "
                    "minutes. Try again: another machine will be taken."
                )
            time.sleep(self.waits.look_s)

    def _check_price(self, machine: Machine) -> None:
        """Record the price that is billed, if known; raise ComputeError if too high."""
        hourly = self.record.billed(machine)
        if hourly == self.record.hourly:
            return
        self._write(hourly=hourly)
        cap = f"${in_cents(self.record.quoted)} was agreed on"
        most = self.record.quoted * _SLACK
        if self.max_hourly is not None:
            cap, most = f"--max-hourly is ${self.max_hourly:.2f}", self.max_hourly
        if hourly > most:
            raise ComputeError(
                f"{machine.name} really costs ${in_cents(hourly)} an hour, and {cap}."
            )

    def _watch(self) -> None:
        """Write a heartbeat into the record; interrupt the block at the cost limit."""
        while (left := self.seconds_left(_RESERVE_S)) != 0:
            if self._left.wait(_BEAT_S if left is None else min(_BEAT_S, left)):
                return
            with suppress(OSError):  # the disk may be full
                self._write()
        self._is_over_limit = True
        self._say("The cost limit of the run is reached.")
        self._signals.interrupt()

    def _leave(self, error: BaseException | None) -> None:
        """End the machine; if the block raised ``error``, fetch its files first."""
        is_taken, is_ended = isinstance(error, MachineTakenError), False
        is_fetched = error is None or is_taken or not self.record.address
        self._left.set()
        try:
            while not is_ended:
                with suppress(KeyboardInterrupt):  # a signal just before `deferred`
                    if not is_fetched:
                        self._fetch_results()
                        is_fetched = True
                    with self._signals.deferred(
                        "The rented machine is being ended first",
                        "Interrupted while a rented machine was being ended: it may "
                        "still exist. `agentgym gpu reap` shows and ends it.",
                        _PATIENCE,
                    ):
                        self._end(error)
                        is_ended = True
        finally:
            self._signals.restore()
            remove_key(self.folder)
        self._report_end(error)
        self._signals.give_on()
        if is_taken and self._signals.has_come:  # no other machine is wanted
            raise KeyboardInterrupt
        if self._is_over_limit and error is not None:
            raise self._limit_reached() from None

    def _fetch_results(self) -> None:
        """Fetch the machine's files, within ``waits.fetch_s`` and the paid time."""
        paid = self.seconds_left()
        bound = self.waits.fetch_s if paid is None else min(self.waits.fetch_s, paid)
        self.lost = f"it was not fetched within {bound:.0f} s"

        def rescue() -> None:
            try:
                self.rescue()
            except Exception as error:  # noqa: BLE001 - the machine must be ended
                self.lost = str(error).rstrip(".")
            else:
                self.lost = ""

        work = threading.Thread(target=rescue, daemon=True)
        try:
            with self._signals.deferred(
                "The machine's finished files are being fetched first",
                "a signal came again while it was being fetched",
                _PATIENCE,
            ):
                work.start()
                work.join(bound)
        except Interrupted as error:
            self.lost = str(error)

    def _end(self, error: BaseException | None) -> None:
        why = self.record.why if error is None else f"{type(error).__name__}: {error}"
        if self.record.fate == "never":  # not requested, or refused
            self.provider.forget(self.record.name)
            self._write(why=why)
            return
        self._say(f"Ending {self.record.name}.")
        machine = self._machine or self.record.machine
        try:
            end(self.provider, machine, self.waits, self._say)
        except BaseException as failed:
            self._write(fate="left", why=f"{failed}")
            if not isinstance(failed, ComputeError):
                raise
        else:
            fate = "taken" if isinstance(error, MachineTakenError) else "ended"
            fate = "unclear" if self._machine is None else fate
            self._write(fate=fate, ended=now(), why=why)

    def _report_end(self, error: BaseException | None) -> None:
        """Report the machine's end and cost, or add this as a note to ``error``."""
        self.outcome = self.record.words()
        if self.record.fate == "left":
            self.outcome += (
                " End it with `agentgym gpu reap`, or in your provider's console."
                f" ({self.record.why})"
            )
        if self.lost:
            self.outcome += (
                f" Finished files that were not fetched yet are lost: {self.lost}."
            )
        if error is not None:
            error.add_note(self.outcome)
        elif self.record.fate == "left":
            raise ComputeError(self.outcome)
        else:
            self._say(self.outcome)

    def _limit_reached(self) -> LimitReached:
        spent, before = self.record.total, self.record.before
        earlier = f" (${before:.2f} of it for earlier machines)" if before else ""
        return LimitReached(
            str(self.folder),
            f"The limit of ${before + (self.limit or 0):.2f}{earlier} is reached, "
            f"and the run was stopped. {self.outcome}",
            least=math.ceil(max(2 * spent, spent + 1)),
        )

    def _say(self, words: str) -> None:
        """Call ``report`` with a sentence, and ignore its errors."""
        with suppress(Exception):
            self.report(words)

    def _write(self, **changes: Any) -> None:
        with self._writing:
            self.record = self.record.changed(**changes, seen=now())
            self.record.write(self.folder)


def _new_name(folder: Path) -> str:
    """Return a new unique name for the machine of the run in ``folder``."""
    run = "".join(c if c.isascii() and c.isalnum() else "-" for c in folder.name)
    return f"{NAME_PREFIX}{run.lower()[:_NAME_CHARACTERS]}-{secrets.token_hex(4)}"


def _make_key(path: Path) -> str:
    """Create an SSH key pair, and return the public key."""
    tool, public = shutil.which("ssh-keygen"), path.with_suffix(".pub")
    if tool is None:
        raise ComputeError(
            "ssh-keygen is not installed, and a machine elsewhere is reached over SSH. "
            "Install OpenSSH's client (Debian, Ubuntu: apt install openssh-client)."
        )
    remove_key(path.parent)
    words = [tool, "-q", "-t", "ed25519", "-N", "", "-C", "agentgym", "-f", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ComputeError(f"ssh-keygen failed: {done.stderr.strip()}")
    return public.read_text(encoding="utf-8").strip()


def remove_key(folder: Path) -> None:
    """Delete the SSH key of a machine from its run's folder; ignore errors."""
    with suppress(OSError):
        for name in (KEY_FILE, f"{KEY_FILE}.pub"):
            (folder / name).unlink(missing_ok=True)
