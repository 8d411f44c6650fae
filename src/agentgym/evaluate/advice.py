"""Predict from a baseline whether training can help, before it starts."""

from collections.abc import Sequence

from agentgym.core.trajectory import Trajectory
from agentgym.evaluate.compare import solves_more
from agentgym.evaluate.metrics import Metrics, TaskResult
from agentgym.evaluate.numbers import percent, plural

_ENOUGH = 16  # attempts: if all fail, or all succeed, this is not chance
_TASKS, _SAMPLES = 32, 4  # see _never_differ
_FEW = 24  # held-out tasks below which only large gains can be shown
_CLEAR = 20  # held-out tasks from which results are not called few
_CHANGED = 6  # see few_words
_WEAK = 0.1  # share of successful attempts below which a warm start is offered
MOST_CUT = 0.02
"""Share of answers cut at the token limit that causes a warning.

With five answers per rollout, one rollout in ten then has a cut answer.
"""
_TRY = "Try a stronger --model, easier tasks first, or a reward with partial credit."


def doubts(
    baseline: Metrics, *, judged: bool = False, warmed: bool = False
) -> list[str]:
    """Return reasons why training will probably fail; empty if it may work.

    Training reinforces attempts that got a higher reward than others at the same task.
    If all attempts get equal rewards, the policy cannot learn. If a judge ranks
    successful attempts (``judged``), their rewards differ. A ``baseline`` of few
    attempts proves nothing, so it gives no reason. ``warmed``: a warm start came first.
    """
    tasks = [task for task in baseline.by_task if task.attempts]
    families = {task.family for task in tasks}
    useful = {task.family for task in tasks if len(set(task.rewards)) > 1}
    solved = sum(task.successes for task in tasks)
    attempts = sum(task.attempts for task in tasks)
    if attempts < _ENOUGH:
        return []
    found = []
    if solved == 0:
        found.append(
            f"Not one of {attempts:,} attempts at {len(tasks):,} held-out tasks "
            "succeeded. Training reinforces calls that succeed at times; where none "
            f"do, agents learn to make one harmless call. {_TRY}"
        )
    if judged:
        return found
    if solved == attempts:
        said = f"All {attempts:,} attempts at {len(tasks):,} held-out tasks succeeded"
        found.append(
            f"{said} after the warm start. Training can add little to that; it ends "
            "when nothing is left to learn."
            if warmed
            else f"{said}: there is nothing to learn from them. Use the model as it "
            "is, or take harder tasks."
        )
    elif not useful and _never_differ(tasks):
        found.append(
            "No two attempts at the same task were rewarded differently, so none is "
            "better than another to learn from; at most, calls that fail are unlearnt. "
            "Let the reward be higher for better attempts, or raise temperature."
        )
    if found and solved < attempts and useful:
        found.append(
            f"Training has a signal in {len(useful)} of {len(families)} "
            f"families of tasks at present: {', '.join(sorted(useful))}."
        )
    return found


def warm_start_offer(baseline: Metrics) -> str:
    """Return a text that recommends a warm start; empty if it is not needed."""
    if baseline.rollouts < _ENOUGH or baseline.pass_1.value >= _WEAK:
        return ""
    return (
        f"The untrained policy succeeds at {percent(baseline.pass_1.value)} of "
        "held-out attempts. The calls that tasks need are known here: --warm-start "
        "imitates those of training tasks first."
    )


def next_steps(
    before: Metrics,
    after: Metrics,
    *,
    remarks: Sequence[str],
    may_imitate: bool,
    is_small: bool,
) -> list[str]:
    """Return further remedies to try after training; empty if it has helped."""
    if solves_more(before, after):
        return []
    found = [f"{remark[:1].upper()}{remark[1:]}." for remark in remarks]
    if after.tasks < _FEW:
        found.append(
            f"Write more tasks: {after.tasks:,} held-out tasks show only large gains, "
            f"{_FEW} of them, a quarter of about {4 * _FEW} tasks, also medium ones."
        )
    if may_imitate:
        found.append("Begin with the calls that tasks need: add --warm-start.")
    if is_small:
        found.append(
            "Take a language model: --model with a folder or a Hugging Face id; the "
            "shipped policy knows little English."
        )
    return found


def few_words(tasks: int) -> str:
    """Return a warning if there are too few held-out tasks for a clear result, else "".

    For p < 0.05, the paired test needs at least six tasks whose result changes, all in
    the same direction.
    """
    if tasks >= _CLEAR:
        return ""
    if tasks < _CHANGED:
        return (
            f"With {plural(tasks, 'held-out task')} no change can be distinguished "
            "from chance; "
            f"{_CLEAR} or more are needed."
        )
    share = percent(_CHANGED / tasks)
    return (
        f"With {plural(tasks, 'held-out task')} only large changes can be "
        "distinguished from "
        f"chance: {_CHANGED} of them ({share}) must get better, and none worse."
    )


def overflow_words(trajectories: Sequence[Trajectory], model: str) -> str:
    """Return a warning if many attempts exceeded the model's context, else ""."""
    full = [
        made
        for made in trajectories
        if made.reason is not None and made.reason.kind == "context_overflow"
    ]
    if len(full) < MOST_CUT * max(1, len(trajectories)) or not full:
        return ""
    unasked = sum(not made.model_calls for made in full)
    early = f", {unasked:,} of them before the model's first answer" if unasked else ""
    return (
        f"{len(full):,} of {len(trajectories):,} attempts ended since the prompt was "
        f"longer than {model} reads{early}: they count as failed. Choose a model with "
        "a longer context (--model), or shorten the agent's prompt and its tools."
    )


def cut_words(share: float, most: int) -> str:
    """Return a warning if many answers were cut at the token limit, else ""."""
    if share < MOST_CUT:
        return ""
    return (
        f"{percent(share)} of the model's answers ended at their most tokens "
        f"(max_tokens = {most:,}): a call that is cut is lost, and the attempt with "
        "it. Raise max_tokens, or the limit that the agent itself gives, or leave "
        "reasoning out (--set thinking=off)."
    )


def _never_differ(tasks: Sequence[TaskResult]) -> bool:
    """Return whether attempts at the same task will probably get equal rewards.

    Call it if all attempts at each task had equal rewards so far. This is evidence only
    if there are many tasks with several attempts, or if all tasks have the same reward.
    """
    often = [task for task in tasks if task.attempts >= _SAMPLES]
    every = {reward for task in tasks for reward in task.rewards}
    return len(often) >= _TASKS or len(every) == 1
