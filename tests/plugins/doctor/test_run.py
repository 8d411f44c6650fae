"""The doctor: each reason why a run does not learn, from what it leaves behind."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from agentgym import TrainingConfig
from agentgym.core.ledger import FAR_OFF, NO_VARIANCE, ROLE_NOT_TRAINED, Ledger
from agentgym.core.trajectory import Reason
from agentgym.evaluate.compare import Change, Effect
from agentgym.evaluate.intervals import Estimate
from agentgym.evaluate.metrics import Metrics
from agentgym.plugins.doctor.run import Evidence, diagnose, read_evidence
from agentgym.rollout.store.records import NewRollout, RolloutState, StatusChange
from agentgym.rollout.store.store import Store
from agentgym.train.run_folder import RunFolder
from agentgym.train.run_state import RunState
from tests.ui import made_up


def healthy(count: int = 30, **changes: Any) -> Evidence:
    """Return the evidence of a run that learns, with ``changes``."""
    values = {
        "status": "done",
        "config": {"episodes": 10_000},
        "steps": [asdict(made_up.step(number)) for number in range(1, count + 1)],
        "ledger": made_up.ledger(),
        "baseline": made_up.metrics(0.3),
        "validation": made_up.metrics(0.9),
    }
    return Evidence(**{**values, **changes})


def steps_with(count: int = 30, **values: float) -> list[dict[str, Any]]:
    """Return the lines of ``count`` steps that all have ``values``."""
    return [asdict(made_up.step(n, **values)) for n in range(1, count + 1)]


def titles(evidence: Evidence) -> list[str]:
    return [finding.title for finding in diagnose(evidence)]


def stepping(count: int = 30, **values: Any) -> Evidence:
    return healthy(steps=steps_with(count, **values))


def turning(key: str, before: float, after: float, at: int, **values: Any) -> Evidence:
    """Return the evidence of a run where a figure changes after step ``at``."""
    lines = steps_with(**values)
    for line in lines:
        line[key] = before if line["step"] <= at else after
    return healthy(steps=lines)


def masked(trained: int, **reasons: int) -> Evidence:
    """Return the evidence of a run with calls that were masked for ``reasons``."""
    calls = trained + sum(reasons.values())
    ledger = made_up.ledger(calls=calls, trained=trained, masked=Counter(reasons))
    return healthy(ledger=ledger)


def dropping(each_step: int, called: bool) -> Evidence:
    """Return the evidence of a run that dropped rollouts, after calls or before any."""
    lines = [{**line, "dropped": each_step} for line in healthy().steps]
    if called:
        lost = Counter(timeout=300, crashed=10)
        ledger = made_up.ledger(calls=810, trained=500, dropped=lost)
        return healthy(steps=lines, ledger=ledger)
    failures = Counter({"crash: KeyError": 3, "timeout": 2})
    ledger = made_up.ledger(calls=9, trained=9)
    return healthy(steps=lines, ledger=ledger, failures=failures)


def without_tools() -> Metrics:
    nothing = Estimate(value=0.0, low=0.0, high=0.0, n=0)
    return made_up.metrics(0.3).model_copy(update={"tool_reliability": nothing})


def alike(success: float) -> Evidence:
    return stepping(skipped_groups=16, success_rate=success, trained_tokens=0)


LEARNS = {
    "healthy": healthy(),
    "just begun": Evidence(status="running"),
    "few dropped": stepping(dropped=1),
    "steadily dropped": stepping(dropped=2),
    "no variance": masked(10, **{NO_VARIANCE: 90}),
    "roles not trained": masked(100, **{ROLE_NOT_TRAINED: 900}),
    "few far off": masked(991, **{FAR_OFF: 9}),
    "weak base that learnt": healthy(baseline=made_up.metrics(0.04)),
    "sure and right": turning("entropy", 0.4, 0.001, at=9, success_rate=0.95),
    "gap of bfloat16": stepping(logprob_gap=0.03),
    "few cut": stepping(answers_cut=0.01),
}
DIVERGED = "critical: the update diverged"
TOO_LARGE = "warning: updates are too large"
ALONE = [
    (
        healthy(checkpoint_error="step-000007 is corrupt"),
        "critical: the newest checkpoint is corrupt",
        ["step-000007"],
    ),
    (
        healthy(status="failed", error="Every rollout was dropped: boom"),
        "critical: the run failed",
        ["boom"],
    ),
    (
        healthy(ledger=Ledger()),
        "critical: the agent never called the policy",
        ["3,840 rollouts"],
    ),
    (
        healthy(ledger=made_up.ledger(calls=100, trained=90)),
        "critical: the ledger does not add up",
        ["100 model calls were made and 90 accounted for"],
    ),
    (
        dropping(12, called=True),
        "warning: many rollouts were dropped",
        ["most often: timeout", "rollout_timeout_s"],
    ),
    (dropping(64, called=True), "critical: many rollouts were dropped", []),
    (
        dropping(64, called=False),
        "critical: many rollouts were dropped",
        ["most often: crash: KeyError", "by hand"],
    ),
    (
        masked(10, span_not_found=85, length=5),
        "critical: most model calls were masked",
        ["90 of 100 model calls (90 %)", "span_not_found (85)"],
    ),
    (
        masked(50, **{ROLE_NOT_TRAINED: 900, "spans not found": 50}),
        "warning: most model calls were masked",
        ["50 of 100 model calls (50 %)"],
    ),
    (
        masked(970, **{FAR_OFF: 30}),
        "warning: sampling and learning disagree",
        ["30 of 1,000 model calls (3 %) were masked"],
    ),
    (
        healthy(baseline=without_tools()),
        "critical: the untrained policy calls no tools",
        [],
    ),
    (stepping(kl=2.5), TOO_LARGE, ["learning_rate"]),
    (stepping(clip_fraction=0.6), TOO_LARGE, ["learning_rate"]),
    (
        healthy(validation=made_up.metrics(0.31)),
        "warning: training tasks improve and held-out ones do not",
        ["+1 points, to 31 %"],
    ),
    (
        healthy(steps=healthy(3).steps, config={"episodes": 384}),
        "info: the budget is small",
        ["3 policy updates"],
    ),
    (
        turning("logprob_gap", 0.004, 0.2, at=25),
        "warning: sampling leaves the learner",
        ["0.004 nats from the learner's in the first steps, 0.200"],
    ),
    (stepping(logprob_gap=0.08), "warning: sampling and learning disagree", []),
    (
        stepping(answers_cut=0.03),
        "warning: answers are cut",
        ["3 % of the model's answers"],
    ),
]
FIRST = [
    (
        alike(0.97),
        "info: the training tasks are solved",
        ["160 of the last 160 groups"],
    ),
    (alike(0.02), "critical: the tasks are too hard: every attempt fails alike", []),
    (alike(0.5), "critical: attempts at a task end alike", []),
    (stepping(trained_tokens=0), "critical: no token was trained", []),
    (
        healthy(
            steps=steps_with(success_rate=0.05, reward=-0.9),
            baseline=made_up.metrics(0.04),
        ),
        "warning: the base is too weak",
        ["4 %"],
    ),
    (
        turning("entropy", 0.4, 0.001, at=9, success_rate=0.4),
        "warning: the policy has stopped exploring",
        ["from 0.400 to 0.0010 nats at 40 % success"],
    ),
    (stepping(loss=float("nan")), DIVERGED, ["learning_rate"]),
    (stepping(grad_norm=float("inf")), DIVERGED, ["learning_rate"]),
    (
        healthy(status="failed", error="The loss is not finite at step 7."),
        DIVERGED,
        ["learning_rate"],
    ),
    (
        turning("dropped", 0, 40, at=27),
        "warning: rollouts began to be dropped",
        [],
    ),
]


@pytest.mark.parametrize("evidence", LEARNS.values(), ids=LEARNS)
def test_no_findings(evidence: Evidence) -> None:
    assert diagnose(evidence) == []


@pytest.mark.parametrize(("evidence", "title", "words"), [*ALONE, *FIRST])
def test_finding(evidence: Evidence, title: str, words: list[str]) -> None:
    found = diagnose(evidence)
    assert f"{found[0].severity}: {found[0].title}" == title
    assert all(word in found[0].evidence + found[0].advice for word in words)
    if (evidence, title, words) in ALONE:
        assert len(found) == 1


def test_what_got_worse_is_named() -> None:
    change = {"before": 0.96, "after": 0.5, "p_value": 0.001}
    effect = Effect(
        verdict="hurt",
        before=0.8,
        after=0.6,
        p_value=0.01,
        tasks=96,
        worse=(
            Change(name="refund", is_family=True, **change),
            Change(name="out of vocabulary: right tool", is_family=False, **change),
        ),
    )
    found = {f.title: f.evidence for f in diagnose(healthy(effect=effect))}
    assert "fell from 80 % to 60 %" in found["training hurt"]
    assert "refund 96 % -> 50 %" in found["families of tasks got worse"]
    assert "right tool 96 % -> 50 %" in found["held-out sets got worse"]


@pytest.mark.parametrize(("last", "flat"), [(0.8, False), (0.5, True)])
def test_flat_training_reward_is_no_finding_where_validation_rises(
    last: float, flat: bool
) -> None:
    lines = steps_with(reward=0.1, success_rate=0.5)
    for line, share in zip(lines[9::10], (0.5, 0.5, last), strict=True):
        line["validation"] = made_up.metrics(share).model_dump(mode="json")

    assert titles(healthy(steps=lines)) == ["the reward does not rise"] * flat


def test_likeliest_cause_comes_first() -> None:
    lines = [{**line, "kl": 2.5} for line in healthy().steps]
    found = diagnose(healthy(steps=lines, ledger=Ledger(), config={"episodes": 1}))
    assert [finding.severity for finding in found] == ["critical", "warning"]


def test_evidence_is_read_from_a_run_folder(tmp_path: Path) -> None:
    run = RunFolder.create(TrainingConfig.create(output=tmp_path, name="x"))
    for number in range(1, 4):
        run.append_metrics(asdict(made_up.step(number)))
    base: dict[str, Metrics] = {"test": made_up.metrics(0.3)}
    state = RunState(step=3, ledger=made_up.ledger(), baseline=base)
    with run.new_checkpoint(state):
        pass
    run.write_record(status="interrupted")
    evidence = read_evidence(run)
    assert evidence.status == "interrupted"
    assert len(evidence.steps) == 3
    assert evidence.baseline == base["test"]
    assert evidence.ledger == made_up.ledger()


def test_evidence_survives_a_corrupt_checkpoint(tmp_path: Path) -> None:
    run = RunFolder.create(TrainingConfig.create(output=tmp_path, name="x"))
    with run.new_checkpoint(RunState(step=1)):
        pass
    (run.checkpoints()[-1] / "state.json").write_text("{")
    assert titles(read_evidence(run)) == ["the newest checkpoint is corrupt"]


def test_evidence_survives_a_corrupt_result(tmp_path: Path) -> None:
    run = RunFolder.create(TrainingConfig.create(output=tmp_path, name="x"))
    (run.path / "result.json").write_text("{")
    (finding,) = diagnose(read_evidence(run))
    assert (finding.severity, finding.title) == ("warning", "the result cannot be read")
    assert f"{run.path / 'result.json'} cannot be read: " in finding.evidence
    assert "move the file away" in finding.evidence


def test_evidence_of_a_run_without_checkpoints(tmp_path: Path) -> None:
    run = RunFolder.create(TrainingConfig.create(output=tmp_path, name="x"))
    assert titles(read_evidence(run)) == []


def test_reasons_of_dropped_rollouts_are_read_from_the_database(tmp_path: Path) -> None:
    run = RunFolder.create(TrainingConfig.create(output=tmp_path, name="x"))
    reasons = [
        Reason(kind="crash: KeyError", detail="'a'"),
        Reason(kind="crash: KeyError", detail="'b'"),
        Reason(kind="timeout", detail="no end"),
    ]
    with Store(run.path / "rollouts.db", max_attempts=1) as store:
        asked = [NewRollout(input={}) for _ in reasons]
        asked.append(NewRollout(input={}, is_train=False))
        made = store.create_rollouts([*asked, NewRollout(input={})])
        for rollout, reason in zip(made, [*reasons, reasons[0]], strict=False):
            store.fail(rollout.rollout_id, reason)
        failed = StatusChange(state=RolloutState.FAILED, error_message="why")
        store.patch(made[-1].rollout_id, failed)
    assert read_evidence(run).failures == {
        "crash: KeyError": 2,
        "timeout": 1,
        "no reason given": 1,
    }


def test_unreadable_database_gives_no_reasons(tmp_path: Path) -> None:
    run = RunFolder.create(TrainingConfig.create(output=tmp_path, name="x"))
    (run.path / "rollouts.db").write_text("no database")
    assert read_evidence(run).failures == {}
