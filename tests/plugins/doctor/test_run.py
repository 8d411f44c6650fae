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
from agentgym.plugins.doctor.evidence import Evidence, read_evidence
from agentgym.plugins.doctor.run import Obstacle, diagnose
from agentgym.rollout.store.rollout import NewRollout, RolloutState, StatusChange
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


def only(evidence: Evidence) -> Obstacle:
    found = diagnose(evidence)
    assert len(found) == 1, found
    return found[0]


def test_a_run_that_learns_has_no_findings() -> None:
    assert diagnose(healthy()) == []


def test_a_run_that_has_just_begun_has_no_findings() -> None:
    assert diagnose(Evidence(status="running")) == []


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


def test_corrupt_checkpoint() -> None:
    finding = only(healthy(checkpoint_error="step-000007 is corrupt"))
    assert finding.severity == "critical"
    assert "step-000007" in finding.evidence


def test_failed_run_gives_its_error() -> None:
    finding = only(healthy(status="failed", error="Every rollout was dropped: boom"))
    assert "boom" in finding.evidence


def test_agent_that_never_called_the_policy() -> None:
    finding = only(healthy(ledger=Ledger()))
    assert finding.title == "the agent never called the policy"
    assert "3,840 rollouts" in finding.evidence


def test_ledger_with_a_gap() -> None:
    ledger = made_up.ledger(calls=100, trained=90)
    finding = only(healthy(ledger=ledger))
    assert "100 model calls were made and 90 accounted for" in finding.evidence


@pytest.mark.parametrize(("dropped", "severity"), [(12, "warning"), (64, "critical")])
def test_dropped_rollouts_with_their_reason(dropped: int, severity: str) -> None:
    lost = Counter(timeout=300, crashed=10)
    finding = only(
        healthy(
            steps=[{**line, "dropped": dropped} for line in healthy().steps],
            ledger=made_up.ledger(calls=810, trained=500, dropped=lost),
        )
    )
    assert finding.severity == severity
    assert "most often: timeout" in finding.evidence
    assert "rollout_timeout_s" in finding.advice


def test_a_few_dropped_rollouts_are_no_finding() -> None:
    lines = [{**line, "dropped": 1} for line in healthy().steps]
    assert diagnose(healthy(steps=lines)) == []


def test_dropped_before_any_call() -> None:
    lines = [{**line, "dropped": 64} for line in healthy().steps]
    ledger = made_up.ledger(calls=9, trained=9)
    failures = Counter({"crash: KeyError": 3, "timeout": 2})
    finding = only(healthy(steps=lines, ledger=ledger, failures=failures))
    assert "most often: crash: KeyError" in finding.evidence
    assert "by hand" in finding.advice


def test_masked_calls_with_their_reason() -> None:
    masked = Counter(span_not_found=85, length=5)
    finding = only(healthy(ledger=made_up.ledger(calls=100, trained=10, masked=masked)))
    assert finding.severity == "critical"
    assert "90 of 100 model calls (90 %)" in finding.evidence
    assert "span_not_found (85)" in finding.evidence


def test_groups_without_variance_are_not_blamed_on_masks() -> None:
    masked = Counter({NO_VARIANCE: 90})
    evidence = healthy(ledger=made_up.ledger(calls=100, trained=10, masked=masked))
    assert diagnose(evidence) == []


@pytest.mark.parametrize(
    ("success", "severity", "title"),
    [
        (0.97, "info", "the training tasks are solved"),
        (0.02, "critical", "the tasks are too hard: every attempt fails alike"),
        (0.5, "critical", "attempts at a task end alike"),
    ],
)
def test_groups_with_equal_rewards(success: float, severity: str, title: str) -> None:
    lines = steps_with(skipped_groups=16, success_rate=success, trained_tokens=0)
    finding = diagnose(healthy(steps=lines))[0]
    assert (finding.severity, finding.title) == (severity, title)
    assert "160 of the last 160 groups" in finding.evidence


def test_nothing_trained_although_rewards_differ() -> None:
    finding = diagnose(healthy(steps=steps_with(trained_tokens=0)))[0]
    assert finding.title == "no token was trained"


def test_weak_base() -> None:
    lines = steps_with(success_rate=0.05, reward=-0.9)
    finding = diagnose(healthy(steps=lines, baseline=made_up.metrics(0.04)))[0]
    assert finding.title == "the base is too weak"
    assert "4 %" in finding.evidence


def test_weak_base_that_learnt_anyway_is_no_finding() -> None:
    assert diagnose(healthy(baseline=made_up.metrics(0.04))) == []


def test_base_that_calls_no_tools() -> None:
    nothing = Estimate(value=0.0, low=0.0, high=0.0, n=0)
    base = made_up.metrics(0.3).model_copy(update={"tool_reliability": nothing})
    assert only(healthy(baseline=base)).title == "the untrained policy calls no tools"


def test_collapsed_entropy() -> None:
    lines = [
        {**line, "entropy": 0.4 if line["step"] < 10 else 0.001, "success_rate": 0.4}
        for line in healthy().steps
    ]
    finding = diagnose(healthy(steps=lines))[0]
    assert finding.title == "the policy has stopped exploring"
    assert "from 0.400 to 0.0010 nats at 40 % success" in finding.evidence


def test_low_entropy_of_a_policy_that_succeeds_is_no_finding() -> None:
    lines = [
        {**line, "entropy": 0.4 if line["step"] < 10 else 0.001, "success_rate": 0.95}
        for line in healthy().steps
    ]
    assert diagnose(healthy(steps=lines)) == []


@pytest.mark.parametrize("values", [{"kl": 2.5}, {"clip_fraction": 0.6}], ids=str)
def test_updates_that_are_too_large(values: dict[str, float]) -> None:
    lines = [{**line, **values} for line in healthy().steps]
    finding = only(healthy(steps=lines))
    assert finding.title == "updates are too large"
    assert "learning_rate" in finding.advice


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": steps_with(loss=float("nan"))},
        {"steps": steps_with(grad_norm=float("inf"))},
        {"status": "failed", "error": "The loss is not finite at step 7."},
    ],
    ids=["loss", "gradient", "refused"],
)
def test_divergence(changes: dict[str, Any]) -> None:
    finding = diagnose(healthy(**changes))[0]
    assert finding.title == "the update diverged"
    assert "learning_rate" in finding.advice


def test_training_wording_learnt_by_heart() -> None:
    finding = only(healthy(validation=made_up.metrics(0.31)))
    assert finding.title == "training tasks improve and held-out ones do not"
    assert "+1 points, to 31 %" in finding.evidence


def test_small_budget() -> None:
    finding = only(healthy(steps=healthy(3).steps, config={"episodes": 384}))
    assert (finding.severity, finding.title) == ("info", "the budget is small")
    assert "3 policy updates" in finding.evidence


def test_flat_reward_without_a_known_cause() -> None:
    lines = steps_with(reward=0.1, success_rate=0.5)
    finding = only(healthy(steps=lines))
    assert finding.title == "the reward does not rise"


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
    finding = only(read_evidence(run))
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


def test_calls_of_roles_that_are_not_trained_are_no_fault() -> None:
    masked = Counter({ROLE_NOT_TRAINED: 900})
    assert (
        diagnose(healthy(ledger=made_up.ledger(calls=1000, trained=100, masked=masked)))
        == []
    )
    masked["spans not found in the token ids"] = 50
    finding = only(
        healthy(ledger=made_up.ledger(calls=1000, trained=50, masked=masked))
    )
    assert "50 of 100 model calls (50 %)" in finding.evidence


def test_calls_far_from_their_sampling_are_a_finding_of_their_own() -> None:
    ledger = made_up.ledger(calls=1000, trained=970, masked=Counter({FAR_OFF: 30}))
    finding = only(healthy(ledger=ledger))
    assert finding.severity == "warning"
    assert finding.title == "sampling and learning disagree"
    assert finding.evidence.startswith("30 of 1,000 model calls (3 %) were masked")
    few = made_up.ledger(calls=1000, trained=991, masked=Counter({FAR_OFF: 9}))
    assert titles(healthy(ledger=few)) == []


def test_a_gap_that_jumps_is_a_server_with_other_weights() -> None:
    steps = steps_with(logprob_gap=0.004)
    for step in steps[-5:]:
        step["logprob_gap"] = 0.2
    finding = only(healthy(steps=steps))
    assert (finding.severity, finding.title) == (
        "warning",
        "sampling leaves the learner",
    )
    assert "0.004 nats from the learner's in the first steps, 0.200" in finding.evidence


def test_a_gap_that_is_large_from_the_first_step_on_is_named() -> None:
    finding = only(healthy(steps=steps_with(logprob_gap=0.08)))
    assert finding.title == "sampling and learning disagree"
    assert titles(healthy(steps=steps_with(logprob_gap=0.03))) == []  # bfloat16


def test_drops_that_begin_in_the_middle_are_named() -> None:
    steps = steps_with()
    for step in steps[-3:]:
        step["dropped"] = 40
    assert "rollouts began to be dropped" in titles(healthy(steps=steps))
    steady = steps_with(dropped=2)
    assert titles(healthy(steps=steady)) == []


def test_answers_that_are_cut_are_named() -> None:
    finding = only(healthy(steps=steps_with(answers_cut=0.03)))
    assert (finding.severity, finding.title) == ("warning", "answers are cut")
    assert finding.evidence.startswith("3 % of the model's answers")
    assert titles(healthy(steps=steps_with(answers_cut=0.01))) == []
