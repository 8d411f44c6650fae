"""End (delete) rented machines, and verify that they are gone."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from agentgym.errors import ComputeError, ComputeRefusedError
from agentgym.plugins.cloud.base import NAME_PREFIX, Machine, MachineState, Provider

AWAY = (MachineState.STOPPED, MachineState.GONE)


@dataclass(frozen=True)
class Waits:
    """Timeouts and intervals in seconds for renting and ending machines.

    Attributes:
        look_s: Interval between two reads of a provider's list of machines.
        looks: Number of times (not seconds) to read the list in search of a machine,
            since a provider may list a new machine late.
        up_s: Longest wait until a machine runs and its SSH server answers.
        end_s: Longest wait until an ended machine does not exist any more.
        boot_s: Longest wait until a machine has booted, if the provider refuses to end
            it before.
        fetch_s: Longest time to fetch finished files before a machine is ended.
    """

    look_s: float = 5.0
    looks: int = 12
    up_s: float = 900.0
    end_s: float = 300.0
    boot_s: float = 1800.0
    fetch_s: float = 300.0


def find(provider: Provider, name: str, waits: Waits) -> Machine | None:
    """Find the machine ``name`` in the provider's list; None if it is not listed."""
    failed: ComputeError | None = None
    for look in range(waits.looks):
        if look:
            time.sleep(waits.look_s)
        try:
            failed, listed = None, provider.machines()
        except ComputeError as error:
            failed = error
            continue
        for machine in listed:
            if machine.name == name:
                return machine
    if failed is not None:
        raise failed
    return None


def is_away(
    provider: Provider, machine: Machine, waits: Waits, *, is_lost: bool
) -> bool:
    """Return whether a machine that was running does not exist any more.

    False if the provider does not answer. Set ``is_lost`` if the machine cannot be
    used, e.g. after its connection broke. Then the provider is asked several times,
    since it may report the new state late, and a stopped machine counts as gone.
    """
    for look in range(waits.looks if is_lost else 1):
        time.sleep(waits.look_s if look else 0.0)
        with suppress(ComputeError):
            state = provider.describe(machine).state
            if state is MachineState.GONE or (is_lost and state in AWAY):
                return True
    return False


def end(
    provider: Provider,
    machine: Machine,
    waits: Waits,
    report: Callable[[str], None] = lambda words: None,
) -> None:
    """Delete ``machine`` and all machines of the same name; wait until none exists.

    Then call :meth:`Provider.forget`, which deletes e.g. the machine's SSH key. A
    machine without an id is found by its name. If the provider refuses because the
    machine still boots, ``report`` is called with a sentence about it.
    """
    if not machine.name.startswith(NAME_PREFIX):
        raise ComputeError(
            f"{machine.name!r} does not begin with {NAME_PREFIX!r}: it is none of "
            "AgentGym's machines, and is left alone."
        )
    begun, is_reported = time.monotonic(), False
    until = begun + waits.end_s
    while True:
        try:
            problem = _end_once(provider, machine)
        except ComputeError as error:
            problem = str(error)
            if _is_booting(provider, machine, error):
                later = time.monotonic() + waits.end_s
                until = max(until, min(later, begun + waits.boot_s))
                if not is_reported:
                    report(f"It can be ended once it has booted, and is then: {error}")
                is_reported = True
        if not problem:
            provider.forget(machine.name)
            return
        if time.monotonic() >= until:
            raise ComputeError(problem)
        time.sleep(waits.look_s)


def _is_booting(provider: Provider, machine: Machine, error: ComputeError) -> bool:
    """Return whether the provider refused to end a machine because it boots."""
    if not (machine.id and isinstance(error, ComputeRefusedError)):
        return False
    with suppress(ComputeError):
        return provider.describe(machine).state is MachineState.STARTING
    return False


def _end_once(provider: Provider, machine: Machine) -> str:
    """Ask the provider to delete all machines of this name."""
    if machine.id:
        provider.terminate(machine)
    same = [each for each in provider.machines() if each.name == machine.name]
    for other in same:
        if other.id != machine.id:
            provider.terminate(other)
    if machine.id and not same:
        state = provider.describe(machine).state
        if state is MachineState.GONE:
            return ""
        return f"{provider.name} says that {machine.name} is {state.value}."
    return f"{provider.name} still lists {machine.name}." if same else ""
