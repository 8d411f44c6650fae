"""Describe whether training helped, and which results rose and fell."""

from agentgym.evaluate.criteria import Goal
from agentgym.evaluate.numbers import percent
from agentgym.evaluate.words import changes_words, verdict_words
from agentgym.train.result import TrainingResult

_STYLES = {"helped": "bold green", "hurt": "bold red", "made no difference": "bold"}


def effect_lines(result: TrainingResult) -> list[tuple[str, str]]:
    """Return sentences on whether training helped, each with its terminal style.

    They name the metrics that got significantly better or worse, and the goals that
    were reached.
    """
    lines = [(_goal_words(result), "")]
    if (effect := result.effect) is not None:
        better, worse = changes_words(effect)
        has_warm_start = result.warm_start is not None
        verdict = verdict_words(effect, has_warm_start=has_warm_start)
        lines = [
            *((words, "bold") for words in result.gain_words),
            (verdict, _STYLES[effect.verdict]),
            (better, "green"),
            (worse, "red" if effect.worse else "dim"),
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
