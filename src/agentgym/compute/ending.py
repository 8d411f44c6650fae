"""Ends machines for good, and makes sure of it."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from agentgym.compute.base import NAME_PREFIX, Machine, MachineState, Provider
from agentgym.errors import ComputeError, ComputeRefusedError


@dataclass(frozen=True)
class Waits:
    """How long to wait for what, in seconds.

    Attributes:
        look_s: Between two looks at a provider's list.
        looks: For a machine of which it is not known whether it came to be: providers'
            lists lag behind.
        up_s: For a machine to run and have an address.
        end_s: For a machine to be gone.
        boot_s: For one whose end its provider refuses as long as it boots.
        fetch_s: For finished files to be fetched from a machine before it is ended, if
            that was not done yet.
    """

    look_s: float = 5.0
    looks: int = 12
    up_s: float = 900.0
    end_s: float = 300.0
    boot_s: float = 1800.0
    fetch_s: float = 300.0


def find(provider: Provider, name: str, waits: Waits) -> Machine | None:
    """Look several times for a machine by its name; None if it never shows.

    Raises:
        ComputeError: The last look failed.
    """
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


def end(
    provider: Provider,
    machine: Machine,
    waits: Waits,
    report: Callable[[str], None] = lambda words: None,
) -> None:
    """End a machine, and others of its very name; return once none exists.

    Its registration is removed, too.

    Args:
        provider: Whose.
        machine: Is found by its name where its id is not known.
        waits: How long it is asked for.
        report: Called with a sentence if the provider refuses that while it boots.

    Raises:
        ComputeError: It still exists after ``end_s``, or that is not known; after
            ``boot_s`` where its end is refused because it boots.
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
    """Say whether a machine's end was refused while it boots."""
    if not (machine.id and isinstance(error, ComputeRefusedError)):
        return False
    with suppress(ComputeError):
        return provider.describe(machine).state is MachineState.STARTING
    return False


def _end_once(provider: Provider, machine: Machine) -> str:
    """Ask the provider to end a machine; return why it still exists, or ""."""
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
