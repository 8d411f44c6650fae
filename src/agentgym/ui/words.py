"""Numbers in words: shares, intervals, durations and counts, the same everywhere."""

from itertools import pairwise
from math import ceil, floor, isclose

from agentgym.evaluate.intervals import Estimate
from agentgym.scenarios.packs import is_tasks_file
from agentgym.train.result import TrainingResult

_SPARKS = "▁▂▃▄▅▆▇█"


def percent(share: float) -> str:
    """Return ``"93 %"`` for 0.93; one decimal where rounding would claim 100."""
    rounded = f"{100 * share:.0f}"
    if rounded == "100" and not isclose(share, 1.0):
        rounded = f"{floor(1000 * share) / 10:.1f}"
    return f"{rounded} %"


def share_span(estimate: Estimate) -> str:
    """Return a share with its interval, ``"93 % [90, 95]"``."""
    if estimate.n == 0:
        return "not measured"
    low, high = (percent(end)[:-2] for end in (estimate.low, estimate.high))
    return f"{percent(estimate.value)} [{low}, {high}]"


def number_span(estimate: Estimate, scale: float = 1.0) -> str:
    """Return a number with its interval, with as many digits as its size needs."""
    if estimate.n == 0:
        return "not measured"
    ends = [scale * end for end in (estimate.value, estimate.low, estimate.high)]
    value, low, high = (f"{end:,.{_digits(ends[0])}f}" for end in ends)
    return f"{value} [{low}, {high}]"


def number(value: float) -> str:
    """Return a number with two decimals below 10, one below 100, else none."""
    return f"{value:,.{_digits(value)}f}"


def _digits(value: float) -> int:
    return 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0


def duration(seconds: float) -> str:
    """Return ``"45 s"``, ``"4 min 10 s"`` or ``"2 h 5 min"``."""
    total = max(0, round(seconds))
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60} s"
    return f"{total // 3600} h {total % 3600 // 60} min"


def rough_range(least: float, most: float) -> str:
    """Return a range of durations as roughly as it is known, ``"2 to 5 minutes"``."""
    unit, size = next(
        (unit, size)
        for unit, size in (("hour", 3600), ("minute", 60), ("second", 1))
        if most >= 1.5 * size or size == 1
    )
    low, high = max(1, floor(least / size)), max(1, ceil(most / size))
    number = f"{low:,} to {high:,}" if low < high else f"{high:,}"
    return f"{number} {unit}{'' if high == 1 else 's'}"


def plural(count: int, noun: str) -> str:
    """Return ``"1 step"`` or ``"1,204 steps"``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def weights_words(result: TrainingResult) -> str:
    """Say which step a result's weights are of."""
    if result.weights_step == 0:
        return (
            "The weights are those of the warm start: no later ones did better on "
            "validation tasks beyond chance."
        )
    if result.weights_step == result.steps:
        return f"The weights are those of the last step, {result.steps}."
    return (
        f"The weights are those of step {result.weights_step}, which did best on "
        "validation tasks."
    )


def sparkline(values: list[float], width: int) -> str:
    """Draw the means of ``values`` over time in at most ``width`` characters."""
    if len(values) < 2 or width < 2:
        return ""
    count = min(width, len(values))
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    scale = (len(_SPARKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_SPARKS[round((mean - low) * scale)] for mean in means)


def exported(result: TrainingResult) -> str:
    """Return the call that gives a trained agent back: a tasks file has no tools."""
    source = str(result.config.get("scenario", ""))
    has_none = is_tasks_file(source) and "tools=%40" not in source
    return f"{result.export}({'tools=[...]' if has_none else ''})"
