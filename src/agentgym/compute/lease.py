"""A machine for the time of a ``with`` block, and nothing left of it after that."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from agentgym.compute.base import (
    NAME_PREFIX,
    Address,
    Ending,
    Machine,
    MachineState,
    Offer,
    Provider,
)
from agentgym.compute.ending import Waits, end, find
from agentgym.compute.record import MachineRecord, now
from agentgym.errors import (
    AgentGymError,
    ComputeError,
    Interrupted,
    NoCapacityError,
    UnclearLaunchError,
)

KEY_FILE = "machine_key"
TRIES = 4
"""Offers that are asked for, one after the other, where there is no capacity."""
_ANSWER_S = 5.0
_SLACK = 1.1
"""How much more than agreed a machine may cost where no ``max_hourly`` is set."""
_RESERVE_S, _RESERVE = 120.0, 0.05
"""Of the time that a limit pays for, kept to bring home what there is."""
_PATIENCE = 3
"""Signals while a machine is being ended, at which that is given up."""
_NAME_CHARACTERS = 40


class Lease:
    """Rents the first of some offers that can be had.

    ::

        with Lease(provider, offers, folder, limit=5.0) as lease:
            train(lease.address, lease.key_file)

    Whatever ends the block, a signal, an error or its last line, ends the machine, and
    is not done before the provider no longer lists it. Ctrl-C, SIGTERM and SIGHUP raise
    KeyboardInterrupt in the block, once the answer to a launch is there; they do not
    cut short that the machine is ended, unless they come three times.

    Args:
        provider: Whose machines.
        offers: What to ask for, the best first.
        folder: The run's; it has the record ``machine.json``, and the key for as long
            as the machine is there.
        max_hourly: Most $ an hour that the machine may really cost; None allows what
            was offered and a tenth more.
        limit: $ for this machine after which the block is interrupted; None: never.
        before: $ that earlier machines of the run cost, for its record.
        tell: Told in words what happens.
        waits: How long to wait for what.
        held: The machine that the run has already, with its record; no other is rented.

    Attributes:
        address: Where the machine's SSH server listens.
        key_file: The private key that it lets in.
        record: What is in ``machine.json``.

    Raises:
        NoCapacityError: None of the offers can be had.
        ComputeError: The machine costs more than is allowed, never came up, or could
            not be ended: the message says which, and what to do.
    """

    def __init__(
        self,
        provider: Provider,
        offers: Sequence[Offer],
        folder: Path,
        *,
        max_hourly: float | None = None,
        limit: float | None = None,
        before: float = 0.0,
        tell: Callable[[str], None] = lambda words: None,
        waits: Waits | None = None,
        held: tuple[Machine, MachineRecord] | None = None,
    ) -> None:
        self._provider = provider
        self._offers = offers[:TRIES]
        self._folder = folder
        self._max_hourly = max_hourly
        self._limit = limit
        self._tell = tell
        self._waits = waits or Waits()
        self._signals = _Signals()
        self._machine = held[0] if held else None
        self._timer: threading.Timer | None = None
        self._is_over_limit = False
        self._may_be_there = held is not None
        self.key_file = folder / KEY_FILE
        self.record = MachineRecord(
            name=machine_name(folder),
            provider=provider.name,
            limit=limit,
            before=before,
        )
        if held:
            self.record = held[1].changed(
                id=held[0].id, fate="rented", limit=limit, process=os.getpid()
            )

    @property
    def address(self) -> Address:
        """Where the machine's SSH server listens; known inside the block."""
        assert self._machine is not None
        assert self._machine.address is not None
        return self._machine.address

    @property
    def spent(self) -> float:
        """$ so far."""
        return self.record.spent

    @property
    def seconds_left(self) -> float | None:
        """Until the limit is reached, less a reserve; None without one."""
        if self._limit is None or not self.record.hourly:
            return None
        reserve = min(_RESERVE_S * self.record.hourly / 3600, _RESERVE * self._limit)
        left = self._limit - reserve - self.record.spent
        return max(0.0, left / self.record.hourly * 3600)

    @property
    def ending(self) -> Ending | None:
        """How the machine can end itself."""
        assert self._machine is not None
        return self._provider.ending(self._machine)

    def __enter__(self) -> Self:
        self._signals.install()
        try:
            if self._machine is None:
                self._launch(_make_key(self.key_file))
            self._wait_until_up()
            self._watch_limit()
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
        self._leave(error)
        if error is not None:
            self._raise_over_limit()

    def _raise_over_limit(self) -> None:
        if self._is_over_limit:
            raise ComputeError(
                f"The limit of ${self._limit:.2f} is reached: the run was stopped and "
                f"the machine ended. {self.record.words()} What was finished is in "
                f"{self._folder}."
            ) from None

    def _launch(self, public_key: str) -> None:
        """Ask for the offers one by one; a launch that is unclear is looked for."""
        for offer in self._offers:
            self._write(
                fate="asked",
                kind=offer.kind,
                gpu=offer.gpu,
                region=offer.region,
                quoted=offer.hourly,
                hourly=offer.hourly,
                asked=now(),
            )
            where = f" in {offer.region}" if offer.region else ""
            self._tell(
                f"Renting {offer.gpu}{where} of {offer.provider} for "
                f"${offer.hourly:.2f} an hour, as {self.record.name}."
            )
            try:
                with self._signals.deferred():
                    machine = self._asked(offer, public_key)
                    self._machine = machine
                    self._write(fate="rented", id=machine.id)
            except NoCapacityError as error:
                self._write(tried=(*self.record.tried, f"{offer.gpu}{where}: {error}"))
                self._tell(f"Not to be had: {error}")
                continue
            return
        raise NoCapacityError(
            f"None of {len(self._offers)} offers of {self._provider.name} can be had: "
            f"{'; '.join(self.record.tried)} Try again later, or another provider."
        )

    def _asked(self, offer: Offer, public_key: str) -> Machine:
        self._may_be_there = True
        try:
            return self._provider.launch(offer, self.record.name, public_key)
        except UnclearLaunchError as error:
            self._write(fate="unclear", why=str(error))
            self._tell(f"{error} Looking for it by its name.")
            found = find(self._provider, self.record.name, self._waits)
            if found is None:
                raise
            self._tell("It is there.")
            return found
        except AgentGymError:
            self._may_be_there = False
            raise

    def _wait_until_up(self) -> None:
        assert self._machine is not None
        until = time.monotonic() + self._waits.up_s
        settled = time.monotonic() + self._waits.looks * self._waits.look_s
        while True:
            machine = self._provider.describe(self._machine)
            is_lagging = machine.state is MachineState.GONE
            if is_lagging and time.monotonic() < settled:
                time.sleep(self._waits.look_s)
                continue
            self._machine = machine
            self._check_price(machine)
            if machine.state in (MachineState.STOPPED, MachineState.GONE):
                raise ComputeError(
                    f"{machine.name} is {machine.state.value} before it could be used."
                )
            lacks = _lacks(machine)
            if not lacks:
                self._write(address=str(machine.address))
                return
            if time.monotonic() >= until:
                raise ComputeError(
                    f"{machine.name} has {lacks} after {self._waits.up_s / 60:.0f} "
                    "minutes. Try again: another machine will be taken."
                )
            time.sleep(self._waits.look_s)

    def _check_price(self, machine: Machine) -> None:
        """Check what the machine really costs, once its provider tells."""
        if not machine.hourly or machine.hourly == self.record.hourly:
            return
        self._write(hourly=machine.hourly)
        cap = f"${self.record.quoted:.2f} was agreed on"
        most = self.record.quoted * _SLACK
        if self._max_hourly is not None:
            cap, most = f"--max-hourly is ${self._max_hourly:.2f}", self._max_hourly
        if machine.hourly > most:
            raise ComputeError(
                f"{machine.name} really costs ${machine.hourly:.2f} an hour, and {cap}."
            )

    def _watch_limit(self) -> None:
        left = self.seconds_left
        if left is not None and self._signals.can_interrupt:
            self._timer = threading.Timer(left, self._stop_at_limit)
            self._timer.daemon = True
            self._timer.start()

    def _stop_at_limit(self) -> None:
        self._is_over_limit = True
        self._tell(f"The limit of ${self._limit:.2f} is reached.")
        self._signals.interrupt()

    def _leave(self, error: BaseException | None) -> None:
        """End the machine, whatever happened; say so on the error, if there is one.

        Raises:
            ComputeError: It could not be ended, and there is no other error.
        """
        is_ended = False
        try:
            while not is_ended:
                with suppress(KeyboardInterrupt):  # of a moment before they wait
                    if self._timer is not None:
                        self._timer.cancel()
                    with self._signals.deferred(patience=_PATIENCE):
                        self._end(error)
                        is_ended = True
        finally:
            self._signals.restore()
            with suppress(OSError):
                for path in (self.key_file, self.key_file.with_suffix(".pub")):
                    path.unlink(missing_ok=True)
        self._say_what_became(error)
        self._signals.give_on()

    def _say_what_became(self, error: BaseException | None) -> None:
        told = self.record.words()
        if self.record.fate == "left":
            told += (
                " End it with `agentgym gpu reap`, or in your provider's console."
                f" ({self.record.why})"
            )
        if self.record.fate == "left" and error is None:
            raise ComputeError(told)
        if isinstance(error, AgentGymError) and not self._is_over_limit:
            error.add_note(told)
        else:
            with suppress(Exception):  # nobody may read it any more
                self._tell(told)

    def _end(self, error: BaseException | None) -> None:
        why = self.record.why if error is None else f"{type(error).__name__}: {error}"
        if not self._may_be_there:  # never asked for, or refused
            self._write(fate="never", why=why)
            return
        with suppress(Exception):  # nobody may read it any more
            self._tell(f"Ending {self.record.name}.")
        machine = self._machine or self.record.machine
        try:
            end(self._provider, machine, self._waits)
        except BaseException as failed:
            self._write(fate="left", why=f"{failed}")
            if not isinstance(failed, ComputeError):
                raise
        else:
            unclear = self._machine is None
            self._write(fate="unclear" if unclear else "ended", ended=now(), why=why)

    def _write(self, **changes: Any) -> None:
        self.record = self.record.changed(**changes).write(self._folder)


def _lacks(machine: Machine) -> str:
    """Return what a machine still lacks to be used; empty if nothing."""
    if machine.state is not MachineState.RUNNING:
        return "not started"
    if machine.address is None:
        return "no address"
    if machine.address.is_alias:  # only ssh finds it
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
    """Return a name for a run's machine that nothing else has."""
    run = "".join(c if c.isascii() and c.isalnum() else "-" for c in folder.name)
    return f"{NAME_PREFIX}{run.lower()[:_NAME_CHARACTERS]}-{secrets.token_hex(4)}"


def _make_key(path: Path) -> str:
    """Write a new private key that only the user can read; return the public one."""
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


class _Signals:
    """Ctrl-C, SIGTERM and SIGHUP as KeyboardInterrupt, but not at every moment."""

    _NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self._old: dict[int, Any] = {}
        self._came = 0
        self._patience: int | None = None
        self._is_deferring = False
        self._outer: Any = None

    @property
    def can_interrupt(self) -> bool:
        """Whether the block runs where signals arrive."""
        return bool(self._old)

    def install(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in self._NUMBERS:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._old[number] = signal.signal(number, self._handle)

    def restore(self) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        self._old = {}

    def give_on(self) -> None:
        """Let whoever handled SIGTERM before know that it came."""
        outer, self._outer = self._outer, None
        if callable(outer):
            outer(signal.SIGTERM, None)

    def interrupt(self) -> None:
        """Do what Ctrl-C would do."""
        main = threading.main_thread().ident
        number = signal.SIGINT if signal.SIGINT in self._old else signal.SIGTERM
        if main is not None and number in self._old:
            signal.pthread_kill(main, number)

    @contextmanager
    def deferred(self, patience: int | None = None) -> Iterator[None]:
        """Let signals wait for the end of the block, and interrupt there.

        With ``patience`` they do not, but so many of them end the block.
        """
        self._is_deferring, self._patience, self._came = True, patience, 0
        try:
            yield
        finally:
            self._is_deferring = False
        if self._came and patience is None:
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._came += 1
        if number == signal.SIGTERM:
            self._outer = self._old.get(number)
        if not self._is_deferring:
            raise KeyboardInterrupt
        if self._patience is None:
            told = "Interrupted. The answer to the launch is awaited first"
        elif self._came >= self._patience:
            raise Interrupted(
                "Interrupted while a rented machine was being ended: it may still be "
                "there. `agentgym gpu reap` shows and ends it."
            )
        else:
            told = "The rented machine is being ended first; "
            told += f"{self._patience - self._came} more to give that up"
        os.write(2, f"{told}.\n".encode())
