"""Format shares, durations and counts for messages."""

from math import floor, isclose


def percent(share: float) -> str:
    """Format a share: ``"93 %"`` for 0.93; only a share of 1 gives ``"100 %"``."""
    rounded = f"{100 * share:.0f}"
    if rounded == "100" and not isclose(share, 1.0):
        rounded = f"{floor(1000 * share) / 10:.1f}"
    return f"{rounded} %"


def number(value: float) -> str:
    """Format a number with two decimals below 10, one below 100, else none."""
    return f"{value:,.{digits(value)}f}"


def duration(seconds: float) -> str:
    """Format seconds, e.g. as ``"45 s"``, ``"4 min 10 s"`` or ``"2 h 5 min"``."""
    total = max(0, round(seconds))
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60} s"
    return f"{total // 3600} h {total % 3600 // 60} min"


def plural(count: int, noun: str, many: str = "") -> str:
    """Format a count with a noun: ``"1 step"``, ``"1,204 steps"``.

    ``many`` is the plural if it is irregular.
    """
    return f"{count:,} {noun if count == 1 else many or f'{noun}s'}"


def digits(value: float) -> int:
    """Return the number of decimals that :func:`number` shows."""
    return 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
