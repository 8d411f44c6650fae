"""Describe estimates and the effect of training: one wording for terminal and page."""

from collections.abc import Sequence

from agentgym.evaluate.advice import few_words
from agentgym.evaluate.compare import Change, Effect
from agentgym.evaluate.intervals import Estimate
from agentgym.evaluate.numbers import digits, percent, plural

_VERDICTS = {
    "helped": "{} helped",
    "hurt": "{} hurt",
    "made no difference": "{} made no difference beyond chance",
}
_NAMED = 6  # changes to name


def share_span(estimate: Estimate) -> str:
    """Format a share with its confidence interval, as in ``"93 % [90, 95]"``."""
    if estimate.n == 0:
        return "not measured"
    low, high = (percent(end)[:-2] for end in (estimate.low, estimate.high))
    return f"{percent(estimate.value)} [{low}, {high}]"


def number_span(estimate: Estimate, scale: float = 1.0) -> str:
    """Format a number, multiplied by ``scale``, with its confidence interval."""
    if estimate.n == 0:
        return "not measured"
    ends = [scale * end for end in (estimate.value, estimate.low, estimate.high)]
    value, low, high = (f"{end:,.{digits(ends[0])}f}" for end in ends)
    return f"{value} [{low}, {high}]"


def p_words(p_value: float) -> str:
    """Format a p-value as ``"p = 0.0312"``; a very small one as ``"p < 0.0001"``."""
    return "p < 0.0001" if p_value < 0.0001 else f"p = {p_value:.4f}"


def verdict_words(effect: Effect, *, has_warm_start: bool = False) -> str:
    """Return a sentence on whether training helped, with the p-value."""
    subject = "Warm start and training together" if has_warm_start else "Training"
    verdict = _VERDICTS[effect.verdict].format(subject)
    said = (
        f"{verdict}: pass^1 {percent(effect.before)} -> "
        f"{percent(effect.after)} ({p_words(effect.p_value)}, paired over "
        f"{plural(effect.tasks, 'task')})."
    )
    is_clear = effect.verdict != "made no difference"
    return said if is_clear else f"{said} {few_words(effect.tasks)}".rstrip()


def changes_words(effect: Effect) -> tuple[str, str]:
    """Return the sentences on better and on worse results; the first may be ""."""
    better = _named("Better beyond chance", effect.better)
    worse = _named("Worse beyond chance", effect.worse)
    return better, worse or "No metric got worse beyond chance."


def _named(title: str, changes: Sequence[Change]) -> str:
    if not changes:
        return ""
    ordered = sorted(changes, key=lambda c: -abs(c.after - c.before))
    words = [change.words() for change in ordered[:_NAMED]]
    if more := len(ordered) - len(words):
        words.append(f"{more} more")
    return f"{title}: {'; '.join(words)}."
