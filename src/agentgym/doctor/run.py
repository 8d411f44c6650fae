"""Why a run does not learn: what the evidence from its folder points to.

Each check is one function from :class:`~agentgym.doctor.evidence.Evidence` to a
:class:`Finding` or None, in the order in which causes should be ruled out.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import fmean
from typing import Literal

from agentgym.core.ledger import NO_VARIANCE, NOT_FINITE
from agentgym.doctor.evidence import Evidence

Severity = Literal["critical", "warning", "info"]

_RANK: dict[Severity, int] = {"critical": 0, "warning": 1, "info": 2}
_FEW_STEPS = 10


@dataclass(frozen=True)
class Finding:
    """One thing that stands in the way of learning.

    Attributes:
        severity: ``critical`` stops learning, ``warning`` slows it, ``info`` explains.
        title: What is wrong, in a few words.
        evidence: The numbers that say so.
        advice: What to do.
    """

    severity: Severity
    title: str
    evidence: str
    advice: str


def diagnose(evidence: Evidence) -> list[Finding]:
    """Return what was found, the likeliest cause first; empty if all is well."""
    found = [finding for check in _CHECKS if (finding := check(evidence)) is not None]
    if not found:
        stalled = _no_progress(evidence)
        found = [] if stalled is None else [stalled]
    return sorted(found, key=lambda finding: _RANK[finding.severity])


def _corrupt_checkpoint(run: Evidence) -> Finding | None:
    if not run.checkpoint_error:
        return None
    return Finding(
        "critical",
        "the newest checkpoint is corrupt",
        run.checkpoint_error,
        "Remove that folder; --resume then continues from the one before it.",
    )


def _never_called(run: Evidence) -> Finding | None:
    if run.ledger.calls or not run.steps:
        return None
    return Finding(
        "critical",
        "the agent never called the policy",
        f"No model call in {run.episodes:,} episodes.",
        "Check that make_agent(llm, tools) uses the llm that it is given, and makes "
        "none of its own.",
    )


def _not_finite(run: Evidence) -> Finding | None:
    bad = [s["step"] for s in run.steps if not (isfinite(s["loss"] + s["grad_norm"]))]
    refused = run.status == "failed" and "finite" in run.error
    if not bad and not refused:
        return None
    where = f"Steps {bad[:5]} had no finite loss." if bad else run.error
    return Finding(
        "critical",
        "the update diverged",
        where,
        "Lower learning_rate by a factor of three to ten.",
    )


def _failed(run: Evidence) -> Finding | None:
    if run.status != "failed" or "finite" in run.error:
        return None
    return Finding(
        "critical",
        "the run failed",
        run.error or "No reason was recorded.",
        "Mend the cause; `agentgym train --resume RUN` continues after the last step.",
    )


def _ledger_gap(run: Evidence) -> Finding | None:
    if run.ledger.adds_up:
        return None
    return Finding(
        "critical",
        "the ledger does not add up",
        f"{run.ledger.calls:,} model calls were made and "
        f"{run.ledger.counted:,} accounted for.",
        "This is a fault of AgentGym or of an adapter; please report it.",
    )


def _many_dropped(run: Evidence) -> Finding | None:
    dropped = sum(step["dropped"] for step in run.steps)
    share = dropped / max(1, run.episodes)
    if share < 0.05:
        return None
    reasons = run.failures or run.ledger.dropped
    reason = reasons.most_common(1)[0][0] if reasons else ""
    advice = "Mend that first: run one task with your agent by hand to see it."
    if reason.startswith("timeout"):
        advice = "Raise rollout_timeout_s, or lower concurrency so that each is faster."
    return Finding(
        "critical" if share >= 0.3 else "warning",
        "many rollouts were dropped",
        f"{dropped:,} of {run.episodes:,} rollouts ({share:.0%})"
        + (f", most often: {reason}." if reason else "."),
        advice,
    )


def _many_masked(run: Evidence) -> Finding | None:
    explained = (NO_VARIANCE, NOT_FINITE)  # other checks are about these
    reasons = Counter(
        {why: n for why, n in run.ledger.masked.items() if why not in explained}
    )
    masked = reasons.total()
    share = masked / max(1, run.ledger.calls)
    if share < 0.25:
        return None
    reason, count = reasons.most_common(1)[0]
    return Finding(
        "critical" if share >= 0.8 else "warning",
        "most model calls taught nothing" if share >= 0.5 else "many calls were masked",
        f"{masked:,} of {run.ledger.calls:,} model calls ({share:.0%}), most often: "
        f"{reason} ({count:,}).",
        "A call is masked when its spans cannot be found in its token ids or its "
        "component is not trained: see define_trainable_components() and the "
        "model's chat template.",
    )


def _no_tool_calls(run: Evidence) -> Finding | None:
    if run.baseline is None or run.baseline.tool_reliability.n:
        return None
    return Finding(
        "critical",
        "the untrained policy calls no tools",
        f"Not one tool call in {run.baseline.rollouts:,} baseline rollouts.",
        "Check that the agent offers its tools to the model, and that the model's "
        "chat template renders them.",
    )


def _weak_base(run: Evidence) -> Finding | None:
    if run.baseline is None or run.baseline.pass_1.value >= 0.10:
        return None
    if run.steps and fmean(s["success_rate"] for s in run.recent) >= 0.5:
        return None
    return Finding(
        "warning",
        "the base is too weak",
        f"It solves {run.baseline.pass_1.value:.1%} of held-out tasks; below 10 % "
        "there is little to reinforce.",
        "Start from a stronger --model, or from easier tasks first.",
    )


def _no_variance(run: Evidence) -> Finding | None:
    groups = sum(step["groups"] for step in run.recent)
    skipped = sum(step["skipped_groups"] for step in run.recent)
    if groups == 0 or skipped / groups < 0.8:
        return None
    success = fmean(step["success_rate"] for step in run.recent)
    numbers = (
        f"{skipped} of the last {groups} groups had equal rewards, at "
        f"{success:.0%} success."
    )
    if success >= 0.9:
        return Finding(
            "info",
            "the training tasks are solved",
            numbers,
            "There is nothing more to learn from them: stop, or use harder tasks.",
        )
    if success <= 0.1:
        return Finding(
            "critical",
            "the tasks are too hard: every attempt fails alike",
            numbers,
            "Use easier tasks first, a reward with partial credit, a larger "
            "group_size, or a stronger --model.",
        )
    return Finding(
        "critical",
        "attempts at a task end alike",
        numbers,
        "Raise temperature or group_size, so that attempts differ.",
    )


def _nothing_trained(run: Evidence) -> Finding | None:
    if not run.recent or any(step["trained_tokens"] for step in run.recent):
        return None
    if all(step["skipped_groups"] == step["groups"] for step in run.recent):
        return None  # _no_variance says why
    return Finding(
        "critical",
        "no token was trained",
        f"The loss covered no token in the last {len(run.recent)} steps.",
        "See define_trainable_components() of the scenario, and the masked calls of "
        "the ledger.",
    )


def _entropy_collapse(run: Evidence) -> Finding | None:
    updated = [step for step in run.steps if step["trained_tokens"]]
    if len(updated) < 2 * _FEW_STEPS:
        return None
    first = fmean(step["entropy"] for step in updated[:5])
    last = fmean(step["entropy"] for step in updated[-5:])
    success = fmean(step["success_rate"] for step in updated[-5:])
    if last >= 0.1 * first or success >= 0.8:
        return None
    return Finding(
        "warning",
        "the policy has stopped exploring",
        f"Entropy fell from {first:.3f} to {last:.4f} nats at {success:.0%} success.",
        "Raise entropy_coefficient or temperature, or lower learning_rate.",
    )


def _too_large_steps(run: Evidence) -> Finding | None:
    if not run.recent:
        return None
    kl = max(step["kl"] for step in run.recent)
    clipped = max(step["clip_fraction"] for step in run.recent)
    if kl <= 0.5 and clipped <= 0.4:
        return None
    return Finding(
        "warning",
        "updates are too large",
        f"Lately up to {kl:.2f} nats of KL and {clipped:.0%} of tokens clipped in one "
        "update.",
        "Lower learning_rate.",
    )


def _overfitting(run: Evidence) -> Finding | None:
    if run.validation is None or run.baseline is None:
        return None
    before, after = _thirds([s["success_rate"] for s in run.steps])
    gain = run.validation.pass_1.value - run.baseline.pass_1.value
    if after - before < 0.15 or gain >= 0.25 * (after - before):
        return None
    return Finding(
        "warning",
        "training tasks improve and held-out ones do not",
        f"Success rose from {before:.0%} to {after:.0%} in training, and by "
        f"{100 * gain:+.0f} points, to {run.validation.pass_1.value:.0%}, in "
        "validation.",
        "The policy learns the training wording: give tasks more forms of wording "
        "and more entities, or end earlier.",
    )


def _small_budget(run: Evidence) -> Finding | None:
    spent = run.steps and run.episodes >= run.config.get("episodes", run.episodes + 1)
    if not spent or len(run.steps) >= _FEW_STEPS:
        return None
    return Finding(
        "info",
        "the budget is small",
        f"{run.episodes:,} episodes made {len(run.steps)} policy updates.",
        "Raise --episodes: learning shows after tens of updates.",
    )


def _no_progress(run: Evidence) -> Finding | None:
    """Say so when nothing explains a flat reward.

    Validation decides where there was enough of it: training turns to what still
    fails, so its own reward may stay where it is while the policy learns.
    """
    if len(run.steps) < 2 * _FEW_STEPS:
        return None
    measured = [
        s["validation"]["reward"]["value"] for s in run.steps if "validation" in s
    ]
    rewards = measured if len(measured) >= 3 else [s["reward"] for s in run.steps]
    before, after = _thirds(rewards)
    success = fmean(step["success_rate"] for step in run.recent)
    if after - before >= 0.02 or success >= 0.9:
        return None
    return Finding(
        "warning",
        "the reward does not rise",
        f"Mean reward {before:.3f} in the first third of the run, {after:.3f} in the "
        "last, and none of the usual causes holds.",
        "Try a higher learning_rate or more tasks_per_step; read some failed "
        "trajectories in rollouts.db.",
    )


def _thirds(values: Sequence[float]) -> tuple[float, float]:
    """Return the means of the first and of the last third."""
    size = max(1, len(values) // 3)
    return (fmean(values[:size]), fmean(values[-size:])) if values else (0.0, 0.0)


_CHECKS = (
    _corrupt_checkpoint,
    _not_finite,
    _failed,
    _never_called,
    _ledger_gap,
    _many_dropped,
    _no_tool_calls,
    _weak_base,
    _no_variance,
    _nothing_trained,
    _many_masked,
    _too_large_steps,
    _entropy_collapse,
    _overfitting,
    _small_budget,
)
