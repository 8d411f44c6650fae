"""Describe whether training helped, and which results rose and fell."""

from collections.abc import Sequence

from agentgym.evaluate.compare import Change, Effect
from agentgym.evaluate.criteria import Goal
from agentgym.evaluate.numbers import percent, plural
from agentgym.evaluate.outlook import few_words
from agentgym.train.result import TrainingResult

_VERDICTS = {
    "helped": "{} helped",
    "hurt": "{} hurt",
    "made no difference": "{} made no difference beyond chance",
}
_NAMED = 6  # changes to name
_STYLES = {"helped": "bold green", "hurt": "bold red", "made no difference": "bold"}


def p_words(p_value: float) -> str:
    """Format a p-value as ``"p = 0.0312"``; a very small one as ``"p < 0.0001"``."""
    return "p < 0.0001" if p_value < 0.0001 else f"p = {p_value:.4f}"


def verdict_words(effect: Effect, subject: str = "Training") -> str:
    """Return a sentence on whether ``subject`` helped, with the p-value.

    If there are too few tasks for a clear result, a warning follows.
    """
    verdict = _VERDICTS[effect.verdict].format(subject)
    said = (
        f"{verdict}: pass^1 {percent(effect.before)} -> "
        f"{percent(effect.after)} ({p_words(effect.p_value)}, paired over "
        f"{plural(effect.tasks, 'task')})."
    )
    return f"{said} {few_words(effect.tasks)}".rstrip()


def effect_lines(result: TrainingResult) -> list[tuple[str, str]]:
    """Return sentences on whether training helped, each with its terminal style.

    They name the metrics that got significantly better or worse, and the goals that
    were reached.
    """
    lines = [(_goal_words(result), "")]
    if (effect := result.effect) is not None:
        worse = _named("Worse beyond chance", effect.worse)
        warm = result.warm_start is not None
        subject = "Warm start and training together" if warm else "Training"
        lines = [
            *((words, "bold") for words in result.gain_words),
            (verdict_words(effect, subject), _STYLES[effect.verdict]),
            (_named("Better beyond chance", effect.better), "green"),
            (worse or "No metric got worse beyond chance.", "red" if worse else "dim"),
            *lines,
        ]
    return [(words, style) for words, style in lines if words]


def _goal_words(result: TrainingResult) -> str:
    """Describe which goals are reached, and then which are not; "" without goals.

    Goals that the user did not set are the aims of the scenario.
    """
    goals = result.goals
    reached = ", ".join(_goal(goal) for goal in goals if goal.holds)
    rest = ", ".join(_goal(goal) for goal in goals if not goal.holds)
    if result.config.get("goal") is None:
        aims = f"Of the aims of {result.scenario}"
        parts = [f"reached: {reached}"] if reached else []
        parts += [f"not yet: {rest}"] if rest else []
        return f"{aims}, {'; '.join(parts)}." if parts else ""
    if rest:
        return f"{f'Reached: {reached}. ' if reached else ''}Goal missed: {rest}."
    return f"Goal reached: {reached}."


def _goal(goal: Goal) -> str:
    name = goal.name.replace("_", " ")
    if goal.reached is None:
        return f"{name} not measured (of {percent(goal.least)})"
    share = percent(goal.reached)
    if not goal.holds and share == percent(goal.least):
        share = f"{100 * goal.reached:.1f} %"  # 29.6 % is not 30 %
    return f"{name} {share} (of {percent(goal.least)})"


def _named(title: str, changes: Sequence[Change]) -> str:
    if not changes:
        return ""
    ordered = sorted(changes, key=lambda c: -abs(c.after - c.before))
    words = [change.words() for change in ordered[:_NAMED]]
    if more := len(ordered) - len(words):
        words.append(f"{more} more")
    return f"{title}: {'; '.join(words)}."
