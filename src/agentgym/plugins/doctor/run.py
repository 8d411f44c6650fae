"""Find the reasons why a run does not learn, from the files in its folder.

Files that cannot be read are skipped.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from pathlib import Path
from statistics import fmean, median
from typing import Any, Literal

from agentgym.core.ledger import (
    FAR_OFF,
    NO_VARIANCE,
    NOT_FINITE,
    ROLE_NOT_TRAINED,
    Ledger,
)
from agentgym.core.trajectory import NO_REASON
from agentgym.errors import CheckpointError, RunFolderError, StoreError
from agentgym.evaluate.advice import MOST_CUT
from agentgym.evaluate.compare import Effect
from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.numbers import percent
from agentgym.rollout.store.reader import StoreReader
from agentgym.train.diagnostics import Remark
from agentgym.train.result import TrainingResult
from agentgym.train.run_folder import RunFolder
from agentgym.train.run_state import RunState

Severity = Literal["critical", "warning", "info"]
"""``critical`` prevents learning, ``warning`` slows it, ``info`` only explains."""

_RECENT = 10  # number of steps that count as recent
_FAILURES = """
SELECT json_extract(CAST(data AS TEXT), '$.reason.kind') FROM rollouts
LEFT JOIN events ON events.rollout_id = rollouts.rollout_id
    AND event_type = 'attempt_failed'
    AND attempt_id = json_extract(CAST(status AS TEXT), '$.last_attempt_id')
WHERE state = 'failed' AND is_train
"""
_FEW_STEPS = 10
_FAR_OFF = 0.01
"""Warn if at least this share of model calls was masked for a wrong probability.

The share is 0 if the sampler (which generates tokens) and the learner (which updates
the policy) compute the same probabilities.
"""
_FIRST = 3
"""Compare the gaps of this many steps at the start of a run and at its end.

The gap is the mean difference between the log-probabilities that the sampler and the
learner compute for the same tokens.
"""
_JUMP = 3.0
_SEEN_GAP = 0.02
"""A growing gap is only reported above this value, in nats; smaller gaps come from
rounding. In TRL's issue 5312, a server that kept old weights made the gap grow from
0.015 to 0.201."""
_LARGE_GAP = 0.05
"""Every gap above this value, in nats, is reported. Rounding in bfloat16 makes a gap of
0.02 to 0.04 (docs/benchmarks_history.md)."""
_LOSING = 0.05
"""Warn if at least this share of the rollouts in the newest steps was dropped."""


@dataclass(frozen=True)
class Evidence:
    """The records of a run, as far as they can be read."""

    status: str  # in run.json: running, interrupted, failed or done
    error: str = ""  # why it failed
    config: dict[str, Any] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)  # lines of metrics.jsonl
    ledger: Ledger = field(default_factory=Ledger)
    baseline: Metrics | None = None  # before the first update
    validation: Metrics | None = None
    remarks: list[Remark] = field(default_factory=list)  # of the newest validation
    checkpoint_error: str = ""  # why the newest checkpoint cannot be read
    result: TrainingResult | None = None  # once it is done
    result_error: str = ""  # why the result cannot be read
    effect: Effect | None = None  # of training, on held-out tasks; once done
    failures: Counter[str] = field(default_factory=Counter)  # of training, by kind

    @property
    def recent(self) -> list[dict[str, Any]]:
        """The records of the last 10 training steps."""
        return self.steps[-_RECENT:]

    @property
    def episodes(self) -> int:
        """Number of training rollouts so far."""
        return int(self.steps[-1]["episodes"]) if self.steps else 0


def read_evidence(run: RunFolder) -> Evidence:
    """Read the records of a run."""
    record = run.record()
    state, problem = RunState(), ""
    try:
        if loaded := run.load_state():
            state = loaded[0]
    except CheckpointError as error:
        problem = str(error)
    result, result_error = read_result(run)
    return Evidence(
        status=str(record.get("status", "unknown")),
        error=str(record.get("error", "")),
        config=record.get("config", {}),
        steps=run.metrics(),
        ledger=state.ledger,
        baseline=state.start if state.baseline else None,
        validation=state.validation,
        remarks=state.watch.remarks,
        checkpoint_error=problem,
        result=result,
        result_error=result_error,
        effect=None if result is None else result.effect,
        failures=_failures(run.path / "rollouts.db"),
    )


def read_result(run: RunFolder) -> tuple[TrainingResult | None, str]:
    """Return a run's result, or None, and why it cannot be read, or ""."""
    try:
        return TrainingResult.load(run.path), ""
    except RunFolderError as error:
        return None, str(error)


def _failures(database: Path) -> Counter[str]:
    """Count failed training rollouts by reason; empty if they cannot be read."""
    try:
        with StoreReader(database).reading() as file:
            rows = file.execute(_FAILURES).fetchall()
    except StoreError:
        return Counter()
    return Counter(kind or NO_REASON.kind for (kind,) in rows)


@dataclass(frozen=True)
class Obstacle:
    """A reason why a run does not learn, with the figures that show it."""

    severity: Severity
    title: str
    evidence: str
    advice: str


_SETTLED = (
    "Where hardly any attempt succeeds, training reinforces calls that cannot fail: "
    "a stronger --model, easier tasks first, or a reward with partial credit; and let "
    "no harmless call be worth anything."
)
_HARD = (
    "Training cannot reinforce tasks that never succeed: add partial "
    "credit, choose easier tasks of these families, or a stronger --model."
)
_ENDLESS = (
    "Let the prompt say when to answer, or raise the agent's limit of model calls if "
    "tasks need more. The plans that a --warm-start imitates do end."
)
_STALLED = (
    "The best validated weights are kept. Try a lower learning_rate, a stronger "
    "--model, or easier tasks first."
)
_REMARKS = {
    "stalled": ("success has stopped rising", _STALLED),
    "right_tool": ("the right tool is called less often than before", _SETTLED),
    "one_tool": ("one tool takes over", _SETTLED),
    "no_end": ("the agent does not stop calling tools", _ENDLESS),
    "unsolved": ("families of tasks are never solved", _HARD),
}
"""For each kind of warning of a validation, a title and advice."""

_critical = partial(Obstacle, "critical")
_warning = partial(Obstacle, "warning")
_info = partial(Obstacle, "info")


def diagnose(run: Evidence) -> list[Obstacle]:
    """Return the reasons why a run does not learn, by severity, then likelihood."""
    checks = (
        *(_broken, _lost, _losing, _base, _watched, _signal, _far_off, _gap, _cut),
        *(_updates, _outcome, _regressions),
    )
    found = [finding for check in checks for finding in check(run)]
    ranks = ("critical", "warning", "info")
    found.sort(key=lambda finding: ranks.index(finding.severity))
    return found or list(_no_progress(run))


def _broken(run: Evidence) -> Iterator[Obstacle]:
    """Find errors that ended the run, and a damaged policy, checkpoint or result."""
    if run.checkpoint_error:
        yield _critical(
            "the newest checkpoint is corrupt",
            run.checkpoint_error,
            "Remove that folder; --resume then continues from the one before it.",
        )
    if run.result_error:
        yield _warning(
            "the result cannot be read",
            run.result_error,
            "Steps, rollouts and warnings are shown without it.",
        )
    bad = [s["step"] for s in run.steps if not isfinite(s["loss"] + s["grad_norm"])]
    failed, refused = run.status == "failed", "finite" in run.error
    if bad or (failed and refused):
        yield _critical(
            "the update diverged",
            f"Steps {bad[:5]} had no finite loss." if bad else run.error,
            "Lower learning_rate by a factor of three to ten.",
        )
    if failed and not refused:
        yield _critical(
            "the run failed",
            run.error or "No reason was recorded.",
            "Fix the cause; `agentgym train --resume RUN` continues after the last "
            "step.",
        )


def _lost(run: Evidence) -> Iterator[Obstacle]:
    """Find missing model calls, calls without a recorded outcome, dropped rollouts."""
    calls, counted, episodes = run.ledger.calls, run.ledger.counted, run.episodes
    if run.checkpoint_error:  # which has the ledger
        return
    if run.steps and not calls:
        yield _critical(
            "the agent never called the policy",
            f"No model call in {episodes:,} rollouts.",
            "Check that make_agent(llm, tools) uses the llm that it is given, and "
            "makes none of its own.",
        )
    if not run.ledger.adds_up:
        yield _critical(
            "the ledger does not add up",
            f"{calls:,} model calls were made and {counted:,} accounted for.",
            "This is a fault of AgentGym or of an adapter; please report it.",
        )
    dropped = sum(step["dropped"] for step in run.steps)
    share = dropped / max(1, episodes)
    if share >= 0.05:
        reasons = (run.failures or run.ledger.dropped).most_common(1)
        reason = reasons[0][0] if reasons else ""
        advice = "Fix that first: run one task with your agent by hand to see it."
        if reason.startswith("timeout"):
            advice = "Raise rollout_timeout_s, or lower concurrency so that each is "
            advice += "faster."
        yield Obstacle(
            "critical" if share >= 0.3 else "warning",
            "many rollouts were dropped",
            f"{dropped:,} of {episodes:,} rollouts ({percent(share)})"
            + (f", most often: {reason}." if reason else "."),
            advice,
        )


def _base(run: Evidence) -> Iterator[Obstacle]:
    """Check whether the untrained policy calls tools and solves enough tasks."""
    if run.baseline is None:
        return
    if not run.baseline.tool_reliability.n:
        yield _critical(
            "the untrained policy calls no tools",
            f"Not one tool call in {run.baseline.rollouts:,} baseline rollouts.",
            "Check that the agent offers its tools to the model, and that the model's "
            "chat template renders them.",
        )
    solved = run.baseline.pass_1.value
    if solved < 0.10 and (not run.steps or _mean(run.recent, "success_rate") < 0.5):
        yield _warning(
            "the base is too weak",
            f"It solves {percent(solved)} of held-out tasks; below 10 % there is "
            "little to reinforce.",
            "Start from a stronger --model or easier tasks, or from a --warm-start if "
            "the scenario has needed_calls.",
        )


def _watched(run: Evidence) -> Iterator[Obstacle]:
    """Report the newest validation's warnings, e.g. that one tool gets all calls."""
    for remark in run.remarks:
        severity: Severity = "info" if remark.kind == "unsolved" else "warning"
        evidence = f"{remark.text[:1].upper()}{remark.text[1:]}."
        title, advice = _REMARKS[remark.kind]
        yield Obstacle(severity, title, evidence, advice)


def _signal(run: Evidence) -> Iterator[Obstacle]:
    """Find steps and calls without a signal, e.g. with equal rewards or masked."""
    groups = sum(step["groups"] for step in run.recent)
    skipped = sum(step["skipped_groups"] for step in run.recent)
    if groups and skipped / groups >= 0.8:
        yield _equal_rewards(run, skipped, groups)
    trained = any(step["trained_tokens"] for step in run.recent)
    if not trained and any(s["skipped_groups"] != s["groups"] for s in run.recent):
        yield _critical(
            "no token was trained",
            f"The loss covered no token in the last {len(run.recent)} steps.",
            "See define_trainable_components() of the scenario, and the masked calls "
            "of the ledger.",
        )
    # Reasons that are not a fault of these calls, or that another check reports.
    explained = (NO_VARIANCE, NOT_FINITE, ROLE_NOT_TRAINED, FAR_OFF)
    masked = Counter({w: n for w, n in run.ledger.masked.items() if w not in explained})
    calls = run.ledger.calls - run.ledger.masked[ROLE_NOT_TRAINED]
    share = masked.total() / max(1, calls)
    if share >= 0.25:
        reason, count = masked.most_common(1)[0]
        title = "most model calls were masked"
        yield Obstacle(
            "critical" if share >= 0.8 else "warning",
            title if share >= 0.5 else "many calls were masked",
            f"{masked.total():,} of {calls:,} model calls ({percent(share)}), "
            f"most often: {reason} ({count:,}).",
            "A call is masked when its spans cannot be found in its token ids or its "
            "component is not trained: see define_trainable_components() and the "
            "model's chat template; or when it ends beyond max_episode_tokens.",
        )


def _far_off(run: Evidence) -> Iterator[Obstacle]:
    """Find model calls masked because sampler and learner disagree on probabilities."""
    count = run.ledger.masked[FAR_OFF]
    share = count / max(1, run.ledger.calls)
    if share >= _FAR_OFF:
        yield _warning(
            "sampling and learning disagree",
            f"{count:,} of {run.ledger.calls:,} model calls ({percent(share)}) were "
            f"masked: {FAR_OFF}.",
            "See ratio_p99 and logprob_gap in metrics.jsonl. Where they are large from "
            "the first step on, set precision = 'float32', or look for a server that "
            "answers with other weights or at another temperature.",
        )


def _gap(run: Evidence) -> Iterator[Obstacle]:
    """Find a large or growing gap between the sampler's and the learner's logprobs."""
    gaps = [float(step.get("logprob_gap", 0.0)) for step in run.steps]
    if not gaps:
        return
    first, lately = median(gaps[:_FIRST]), fmean(gaps[-_FIRST:])
    numbers = (
        f"The log-probabilities of sampled tokens were {first:.3f} nats from the "
        f"learner's in the first steps, {lately:.3f} lately."
    )
    if len(gaps) > 2 * _FIRST and lately > max(_SEEN_GAP, _JUMP * first):
        yield _warning(
            "sampling leaves the learner",
            numbers,
            "A server that keeps answering with earlier weights does that: look for "
            "adapters that it did not load, and resume the run, which starts it again.",
        )
    elif lately > _LARGE_GAP:
        yield _warning(
            "sampling and learning disagree",
            numbers,
            "Rounding in bfloat16 makes 0.04 at most. Set precision = 'float32', or "
            "look for a server with other weights or another temperature.",
        )


def _losing(run: Evidence) -> Iterator[Obstacle]:
    """Find a sudden rise in the share of rollouts that are dropped."""
    before = run.steps[: -len(run.recent)]
    if not before:
        return
    earlier = before[-1]["episodes"]
    lost = sum(step["dropped"] for step in run.recent) / (run.episodes - earlier)
    lost_before = sum(step["dropped"] for step in before) / earlier
    if lost >= _LOSING > 5 * lost_before:
        yield _warning(
            "rollouts began to be dropped",
            f"{percent(lost)} of the rollouts of the last {len(run.recent)} steps, "
            f"{percent(lost_before)} of those before.",
            "Something outside the policy has changed: see workers.log in the run's "
            "folder, the machine's memory and disk, and the services that tools use.",
        )


def _cut(run: Evidence) -> Iterator[Obstacle]:
    """Find model answers that were cut at the token limit."""
    known = [step for step in run.recent if "answers_cut" in step]
    share = _mean(known, "answers_cut") if known else 0.0
    if share >= MOST_CUT:
        yield _warning(
            "answers are cut",
            f"{percent(share)} of the model's answers lately ended at their most "
            "tokens; a call that is cut is lost, and the attempt with it.",
            "Raise max_tokens, or the limit that the agent itself gives, or leave "
            "reasoning out (--set thinking=off).",
        )


def _equal_rewards(run: Evidence, skipped: int, groups: int) -> Obstacle:
    success = _mean(run.recent, "success_rate")
    numbers = (
        f"{skipped} of the last {groups} groups had equal rewards, at "
        f"{percent(success)} success."
    )
    if success >= 0.9:
        return _info(
            "the training tasks are solved",
            numbers,
            "There is nothing more to learn from them: stop, or use harder tasks.",
        )
    if success <= 0.1:
        return _critical(
            "the tasks are too hard: every attempt fails alike",
            numbers,
            "Use easier tasks first, a reward with partial credit, a larger "
            "group_size, or a stronger --model.",
        )
    return _critical(
        "attempts at a task end alike",
        numbers,
        "Raise temperature or group_size, so that attempts differ.",
    )


def _updates(run: Evidence) -> Iterator[Obstacle]:
    """Find policy updates that are too large, and a policy that no longer explores."""
    kl = max((step["kl"] for step in run.recent), default=0.0)
    clipped = max((step["clip_fraction"] for step in run.recent), default=0.0)
    if kl > 0.5 or clipped > 0.4:
        yield _warning(
            "updates are too large",
            f"Lately up to {kl:.2f} nats of KL and {percent(clipped)} of tokens "
            "clipped in one update.",
            "Lower learning_rate.",
        )
    updated = [step for step in run.steps if step["trained_tokens"]]
    if len(updated) >= 2 * _FEW_STEPS:
        first, last = _mean(updated[:5], "entropy"), _mean(updated[-5:], "entropy")
        success = _mean(updated[-5:], "success_rate")
        if last < 0.1 * first and success < 0.8:
            yield _warning(
                "the policy has stopped exploring",
                f"Entropy fell from {first:.3f} to {last:.4f} nats at "
                f"{percent(success)} success.",
                "Raise entropy_coefficient or temperature, or lower learning_rate.",
            )


def _outcome(run: Evidence) -> Iterator[Obstacle]:
    """Find held-out tasks that do not improve with training tasks, and short runs."""
    if run.validation is not None and run.baseline is not None:
        before, after = _thirds([step["success_rate"] for step in run.steps])
        reached = run.validation.pass_1.value
        gain = reached - run.baseline.pass_1.value
        if after - before >= 0.15 and gain < 0.25 * (after - before):
            yield _warning(
                "training tasks improve and held-out ones do not",
                f"Success rose from {percent(before)} to {percent(after)} in training, "
                f"and by {100 * gain:+.0f} points, to {percent(reached)}, in "
                "validation.",
                "The policy learns the training wording: give tasks more forms of "
                "wording and more entities, or end earlier.",
            )
    budget = run.config.get("episodes", run.episodes + 1)
    if 0 < len(run.steps) < _FEW_STEPS and run.episodes >= budget:
        yield _info(
            "the budget is small",
            f"{run.episodes:,} rollouts made {len(run.steps)} policy updates.",
            "Raise --episodes: learning shows after tens of updates.",
        )


def _regressions(run: Evidence) -> Iterator[Obstacle]:
    """Find held-out sets and families (kinds) of tasks that got significantly worse."""
    if run.effect is None:
        return
    families = [change.words() for change in run.effect.worse if change.is_family]
    others = [change.words() for change in run.effect.worse if not change.is_family]
    if run.effect.verdict == "hurt":
        yield _warning(
            "training hurt",
            f"pass^1 on held-out tasks fell from {percent(run.effect.before)} to "
            f"{percent(run.effect.after)} (p = {run.effect.p_value:.4f}).",
            "Use the agent as it was before, or lower learning_rate and train again.",
        )
    if families:
        yield _warning(
            "families of tasks got worse",
            f"Beyond chance: {'; '.join(families)}.",
            "Give training more tasks of these families, or lower learning_rate.",
        )
    if others:
        yield _warning(
            "held-out sets got worse",
            f"Beyond chance: {'; '.join(others)}.",
            "The policy learns the peculiarities of the training tasks: give them more "
            "forms of wording, tools and entities, or end earlier.",
        )


def _no_progress(run: Evidence) -> Iterator[Obstacle]:
    """Report a reward that does not rise; used if no other reason was found."""
    # Training prefers tasks that fail, so its reward may not rise although the policy
    # learns. Validations are more reliable.
    if len(run.steps) < 2 * _FEW_STEPS:
        return
    validated = [s["validation"] for s in run.steps if "validation" in s]
    rewards = [step["reward"] for step in run.steps]
    if len(validated) >= 3:
        rewards = [validation["reward"]["value"] for validation in validated]
    before, after = _thirds(rewards)
    if after - before < 0.02 and _mean(run.recent, "success_rate") < 0.9:
        yield _warning(
            "the reward does not rise",
            f"Mean reward {before:.3f} in the first third of the run, {after:.3f} in "
            "the last, and none of the usual causes holds.",
            "Try a higher learning_rate or more tasks_per_step; read some failed "
            "trajectories in rollouts.db.",
        )


def _mean(steps: Sequence[dict[str, Any]], name: str) -> float:
    return fmean(step[name] for step in steps)


def _thirds(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of the first third of the values, and that of the last third."""
    size = max(1, len(values) // 3)
    return (fmean(values[:size]), fmean(values[-size:])) if values else (0.0, 0.0)
