"""FaultSettings: the group of settings ``faults``."""

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator

from agentgym.core.panels import TRAINING
from agentgym.core.settings import SettingsGroup, setting

KINDS = ("timeout", "error", "stale", "renamed")
EXAMPLE = "timeout=0.05,error=0.05"


def read_rates(given: Any) -> Any:
    """Return the share of calls by kind of fault, from texts such as ``error=0.1``."""
    if isinstance(given, str):
        given = [given]
    if isinstance(given, list | tuple):
        parts = [
            part for text in given for part in str(text).split(",") if part.strip()
        ]
        given = {
            name.strip(): share.strip() or "(none)"
            for name, _, share in (part.partition("=") for part in parts)
        }
    if not isinstance(given, dict):
        return given
    rates: dict[str, float] = {}
    for name, share in given.items():
        if name not in KINDS:
            known = ", ".join(KINDS)
            raise ValueError(f"{name!r} is not a kind of fault; known: {known}")
        try:
            rates[name] = float(share)
        except (TypeError, ValueError):
            raise ValueError(f"write shares of calls, as in {EXAMPLE}") from None
    if not all(0 <= share <= 1 for share in rates.values()) or sum(rates.values()) > 1:
        raise ValueError("shares of calls are from 0 to 1, and at most 1 together")
    return rates


class FaultSettings(SettingsGroup):
    """Faults of tools that an agent should recover from."""

    name: ClassVar = "faults"
    main: ClassVar = "rates"
    further: ClassVar = "rates"
    may_change: ClassVar = ()

    rates: Annotated[dict[str, float], BeforeValidator(read_rates)] = setting(
        {},
        f"Share of tool calls that meet an injected fault, by kind, as in {EXAMPLE}: "
        "timeout, error, stale (the result of an earlier equal call), renamed (a field "
        "of the result has another name). Held-out tasks are measured without and with "
        "faults.",
        TRAINING,
        option="--faults",
        metavar="KIND=SHARE,...",
    )
