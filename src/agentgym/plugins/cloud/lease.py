"""Lease: rent a machine for a ``with`` block, and end it afterwards."""

import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agentgym.errors import (
    AgentGymError,
    ComputeError,
    Interrupted,
    LimitReached,
    MachineTakenError,
    NoCapacityError,
    TrainingHalted,
    UnclearLaunchError,
    UnreachableError,
)
from agentgym.plugins.cloud.base import (
    NAME_PREFIX,
    Address,
    EndRequest,
    Machine,
    MachineState,
    Offer,
    Provider,
    in_cents,
)
from agentgym.plugins.cloud.ending import AWAY, Waits, end, find, is_away
from agentgym.plugins.cloud.record import (
    KEY_FILE,
    MachineRecord,
    make_key,
    now,
    remove_key,
)
from agentgym.train.interrupts import DeferredSignals

TRIES = 4
"""Most offers to try in turn if GPUs are sold out."""
_ANSWER_S = 5.0
_SLACK = 1.1
"""Without ``max_hourly``, a machine may cost this multiple of the agreed price."""
_RESERVE_S, _STOP_S = 120.0, 60.0
"""Seconds of paid time to reserve for stopping training and fetching files.

The reserve is ``_RESERVE_S`` until a transfer was measured, then ``_STOP_S`` plus twice
the transfer's time."""
_MOST_RESERVED = 0.5
_PATIENCE = 3
"""Number of signals, e.g. Ctrl-C, that stop the current step of the clean-up: fetching
the machine's files, or ending the machine."""
_BEAT_S = 30.0
_REFUSALS = 3
"""Number of errors, other than broken connections, after which fetching files ends."""
_NAME_CHARACTERS = 40


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
        offers: Offers to try, the best first.
        folder: The run's folder. It gets the record ``machine.json`` and, while the
            machine exists, the machine's SSH key.
        max_hourly: Highest price in $ per hour that may be billed for the machine. If
            None, the offered price plus a tenth.
        limit: Cost of this machine in $ at which the block is interrupted; None for no
            limit.
        before: Cost in $ of the run's earlier machines, for the record.
        taken: Number of the run's earlier machines that the provider took away.
        report: Called with sentences about the machine, to show to the user.
        held: A machine that the run has already rented, with its record. If given, it
            is used, and none is rented.
        rescue: Fetches the machine's files after an error in the block. If it raises an
            error, it is called again, within the time limit.
        lost: Why some of the machine's files were not fetched; empty if all were.
        outcome: Sentences on the machine's end and cost, and on files that are lost.
            Empty inside the block.

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
    before: float = 0.0
    taken: int = 0
    report: Callable[[str], None] = lambda words: None
    waits: Waits = field(default_factory=Waits)
    held: tuple[Machine, MachineRecord] | None = None
    rescue: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.lost = self.outcome = ""
        self.key_file = self.folder / KEY_FILE
        self.record = MachineRecord(
            name=machine_name(self.folder),
            provider=self.provider.name,
            limit=self.limit,
            before=self.before,
            taken=self.taken,
        )
        self._machine: Machine | None = None
        if self.held:
            self._machine, record = self.held
            self.record = record.changed(
                id=self._machine.id,
                fate="rented",
                limit=self.limit,
                process=os.getpid(),
            )
        self._may_exist = self.held is not None
        self._signals = DeferredSignals()
        self._left = threading.Event()
        self._writing = threading.Lock()
        self._is_over_limit = False
        self._reserve_s = _RESERVE_S

    @property
    def address(self) -> Address:
        """Address of the machine's SSH server; available inside the block."""
        assert self._machine is not None
        assert self._machine.address is not None
        return self._machine.address

    @property
    def seconds_left(self) -> float | None:
        """Seconds until training must stop, so that paid time is left to fetch files.

        None without a cost limit, or if the price is unknown.
        """
        limit = self.limit or 0.0
        reserve = min(
            self._reserve_s * self.record.hourly / 3600, _MOST_RESERVED * limit
        )
        return self._seconds_until(limit - reserve)

    def reserve(self, seconds: float) -> None:
        """Reserve paid time to fetch results, twice ``seconds`` and a minute."""
        self._reserve_s = _STOP_S + 2 * seconds

    @property
    def seconds_paid(self) -> float | None:
        """Seconds until the machine's cost reaches ``limit``."""
        return self._seconds_until(self.limit or 0.0)

    def _seconds_until(self, cost: float) -> float | None:
        if self.limit is None or not self.record.hourly:
            return None
        return max(0.0, (cost - self.record.spent) / self.record.hourly * 3600)

    def guarded(self) -> None:
        """Record that the machine ends itself if the client's heartbeats stop."""
        self._write(guarded=True)

    def require_machine(self, is_lost: bool) -> None:
        """Raise MachineTakenError if the provider has taken this spot machine away.

        Set ``is_lost`` if the machine cannot be used any more; then the provider is
        asked several times, and a stopped machine counts as taken away.
        """
        if self.record.is_spot and is_away(
            self.provider, self.record.machine, self.waits, is_lost=is_lost
        ):
            raise MachineTakenError(f"{self.record.name} was taken away.")

    @property
    def ending(self) -> EndRequest | None:
        """HTTP request with which the machine can delete itself; None if it cannot."""
        assert self._machine is not None
        return self.provider.ending(self._machine)

    def __enter__(self) -> Self:
        self._signals.install()
        try:
            if self._machine is None:
                self._launch(make_key(self.key_file))
            self._wait_until_up()
            threading.Thread(target=self._watch, daemon=True).start()
        except BaseException as error:
            self._leave(error)
            self._raise_over_limit()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # The machine's own limit may halt the run just before this one does.
        is_last = isinstance(error, TrainingHalted) and self.seconds_left == 0
        self._is_over_limit |= is_last
        self._leave(error)
        if error is not None:
            self._raise_over_limit()

    def _raise_over_limit(self) -> None:
        if self._is_over_limit:
            spent, before = self.record.total, self.record.before
            earlier = f" (${before:.2f} of it for earlier machines)" if before else ""
            raise LimitReached(
                str(self.folder),
                f"The limit of ${before + (self.limit or 0):.2f}{earlier} is reached, "
                f"and the run was stopped. {self.outcome}",
                least=math.ceil(max(2 * spent, spent + 1)),
            ) from None

    def _launch(self, public_key: str) -> None:
        """Launch the first available offer.

        If it is unclear whether a launch worked, search for the machine by its name.
        """
        offers = self.offers[:TRIES]
        for offer in offers:
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
            where = f" in {offer.region}" if offer.region else ""
            self.report(
                f"Renting {offer.gpu}{where} of {offer.provider} for {offer.price}, "
                f"as {self.record.name}."
            )
            try:
                with self._signals.deferred(
                    "The answer to the launch is awaited first"
                ):
                    machine = self._asked(offer, public_key)
                    self._machine = machine
                    self._write(fate="rented", id=machine.id)
            except NoCapacityError as error:
                self._write(tried=(*self.record.tried, f"{offer.gpu}{where}: {error}"))
                self.report(f"Not available: {error}")
                continue
            return
        raise NoCapacityError(
            f"None of {len(offers)} offers of {self.provider.name} is "
            f"available: {'; '.join(self.record.tried)} Try again later, or another "
            "provider."
        )

    def _asked(self, offer: Offer, public_key: str) -> Machine:
        self._may_exist = True
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
            self._may_exist = False
            raise

    def _wait_until_up(self) -> None:
        assert self._machine is not None
        until = time.monotonic() + self.waits.up_s
        settled = time.monotonic() + self.waits.looks * self.waits.look_s
        while True:
            machine = self.provider.describe(self._machine)
            is_lagging = machine.state is MachineState.GONE
            if is_lagging and time.monotonic() < settled:
                time.sleep(self.waits.look_s)
                continue
            self._machine = machine
            self._check_price(machine)
            if machine.state in AWAY:
                raise (MachineTakenError if self.record.is_spot else ComputeError)(
                    f"{machine.name} is {machine.state.value} before it could be used."
                )
            lacks = _lacks(machine)
            if not lacks:
                self._write(address=str(machine.address))
                return
            if time.monotonic() >= until:
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
        """Write the current time into the record every 30 seconds, as a heartbeat."""
        while (left := self.seconds_left) != 0:
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
        self._say_what_became(error)
        self._signals.give_on()
        if is_taken and self._signals.has_come:  # no other machine is wanted
            raise KeyboardInterrupt

    def _fetch_results(self) -> None:
        """Fetch the machine's files, within ``waits.fetch_s`` and the paid time."""
        paid = self.seconds_paid
        bound = self.waits.fetch_s if paid is None else min(self.waits.fetch_s, paid)
        given_up = threading.Event()
        self.lost = f"it was not fetched within {bound:.0f} s"
        work = threading.Thread(target=self._try, args=(given_up,), daemon=True)
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
        finally:
            given_up.set()

    def _try(self, given_up: threading.Event) -> None:
        """Fetch the machine's files; retry until ``given_up`` is set."""
        refusals = 0
        while refusals < _REFUSALS and not given_up.is_set():
            try:
                self.rescue()
            except UnreachableError as error:
                self.lost = str(error).rstrip(".")
            except Exception as error:  # noqa: BLE001 - the machine must be ended
                self.lost = str(error).rstrip(".")
                refusals += 1
            else:
                self.lost = ""
                return
            given_up.wait(self.waits.look_s)

    def _say_what_became(self, error: BaseException | None) -> None:
        self.outcome = self.record.words()
        if self.record.fate == "left":
            self.outcome += (
                " End it with `agentgym gpu reap`, or in your provider's console."
                f" ({self.record.why})"
            )
        if self.lost and error is not None:
            self.outcome += (
                f" Finished files that were not fetched yet are lost: {self.lost}."
            )
        if error is not None:
            error.add_note(self.outcome)
        elif self.record.fate == "left":
            raise ComputeError(self.outcome)
        else:
            self._say(self.outcome)

    def _end(self, error: BaseException | None) -> None:
        why = self.record.why if error is None else f"{type(error).__name__}: {error}"
        if not self._may_exist:  # the launch was not requested, or was refused
            self.provider.forget(self.record.name)
            self._write(fate="never", why=why)
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

    def _say(self, words: str) -> None:
        """Call ``report`` with a sentence, and ignore its errors."""
        with suppress(Exception):
            self.report(words)

    def _write(self, **changes: Any) -> None:
        with self._writing:
            self.record = self.record.changed(**changes, seen=now())
            self.record.write(self.folder)


def _lacks(machine: Machine) -> str:
    """Return why a machine cannot be used yet, e.g. ``no address``; "" if it can."""
    if machine.state is not MachineState.RUNNING:
        return "not started"
    if machine.address is None:
        return "no address"
    if machine.address.is_alias:  # only ssh can resolve it
        return ""
    where = (machine.address.host, machine.address.port)
    try:
        with socket.create_connection(where, timeout=_ANSWER_S) as connection:
            connection.settimeout(_ANSWER_S)
            if connection.recv(4) == b"SSH-":
                return ""
    except OSError:
        pass
    return f"no SSH server that answers at {machine.address}"


def machine_name(folder: Path) -> str:
    """Return a new unique name for the machine of the run in ``folder``."""
    run = "".join(c if c.isascii() and c.isalnum() else "-" for c in folder.name)
    return f"{NAME_PREFIX}{run.lower()[:_NAME_CHARACTERS]}-{secrets.token_hex(4)}"
