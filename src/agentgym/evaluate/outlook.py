"""What a baseline says of the training to come, before any time is spent on it."""

from collections.abc import Sequence

from agentgym.evaluate.metrics import Metrics, TaskResult

_ENOUGH = 16  # attempts: that none or all of them succeed is no accident
_TASKS, _SAMPLES = 32, 4  # so many attempts at so many tasks, and none differ
_WEAK = 0.1  # of attempts succeed: below it, a warm start is offered
MOST_CUT = 0.02
"""Of answers that are cut: at five a rollout, one rollout in ten has lost one."""
_TRY = "Try a stronger --model, easier tasks first, or a reward with partial credit."


def doubts(baseline: Metrics) -> list[str]:
    """Return why training will hardly work, in plain words; empty if it may.

    Training reinforces attempts that did better than others at the same task. Where
    none did, there is nothing to reinforce.

    Args:
        baseline: Of the policy on held-out tasks before its first update; what it is
            too small to tell is not said.
    """
    tasks = [task for task in baseline.by_task if task.attempts]
    families = {task.family for task in tasks}
    teaching = {task.family for task in tasks if len(set(task.rewards)) > 1}
    solved = sum(task.successes for task in tasks)
    attempts = sum(task.attempts for task in tasks)
    if attempts < _ENOUGH:
        return []
    found = []
    if solved == 0:
        found.append(
            f"Not one of {attempts:,} attempts at {len(tasks):,} held-out tasks "
            "succeeded. Training reinforces what succeeds at times; where nothing "
            f"does, agents learn to make one harmless call. {_TRY}"
        )
    if solved == attempts:
        found.append(
            f"All {attempts:,} attempts at {len(tasks):,} held-out tasks succeeded: "
            "there is nothing to learn from them. Use the model as it is, or take "
            "harder tasks."
        )
    elif not teaching and _never_differ(tasks):
        found.append(
            "No two attempts at the same task were rewarded differently, so none is "
            "better than another to learn from; at most, calls that fail are unlearnt. "
            "Let the reward tell better attempts from worse ones, or raise temperature."
        )
    if found and solved < attempts and teaching:
        found.append(
            f"There is something to learn in {len(teaching)} of {len(families)} "
            f"families of tasks at present: {', '.join(sorted(teaching))}."
        )
    return found


def warm_start_offer(baseline: Metrics) -> str:
    """Return what speaks for a warm start, in plain words; empty if nothing does.

    Args:
        baseline: Of the untrained policy on held-out tasks. The calls that tasks need
            must be known.
    """
    if baseline.rollouts < _ENOUGH or baseline.pass_1.value >= _WEAK:
        return ""
    return (
        f"The untrained policy succeeds at {baseline.pass_1.value:.0%} of held-out "
        "attempts. The calls that tasks need are known here: --warm-start imitates "
        "those of training tasks first."
    )


def cut_words(share: float, most: int) -> str:
    """Return a warning if many answers ended at their most tokens, else nothing.

    Args:
        share: Of the answers.
        most: Tokens that an answer may have.
    """
    if share < MOST_CUT:
        return ""
    return (
        f"{share:.1%} of the model's answers ended at their most tokens (max_tokens = "
        f"{most:,}): a call that is cut is lost, and the attempt with it. Raise "
        "max_tokens, or the limit that the agent itself gives, or leave reasoning out "
        "(--thinking off)."
    )


def _never_differ(tasks: Sequence[TaskResult]) -> bool:
    """Whether rewards that differ within no task will hardly do so in training.

    Attempts at a task that a policy can do are often alike, so few tasks tell nothing,
    unless all rewards are one number.
    """
    often = [task for task in tasks if task.attempts >= _SAMPLES]
    every = {reward for task in tasks for reward in task.rewards}
    return len(often) >= _TASKS or len(every) == 1
