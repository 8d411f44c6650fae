"""Collect the data of the viewer's pages (list of runs, one run) as JSON values."""

from dataclasses import asdict
from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.errors import AgentGymError
from agentgym.evaluate.compare import Change, Effect
from agentgym.evaluate.intervals import Estimate
from agentgym.evaluate.metrics import METRICS, Metrics
from agentgym.evaluate.words import (
    changes_words,
    p_words,
    share_span,
    verdict_words,
)
from agentgym.plugins.doctor.evidence import Evidence, read_evidence, read_result
from agentgym.plugins.doctor.run import diagnose
from agentgym.scenarios.packs import shown_name
from agentgym.train.result import TrainingResult
from agentgym.train.run_folder import RunFolder
from agentgym.train.status import UNREADABLE, machine_of, run_status

_CURVES = (
    "step",
    "episodes",
    "reward",
    "success_rate",
    "right_tool",
    "right_arguments",
    "tool_reliability",
    "entropy",
    "kl",
    "loss",
    "grad_norm",
    "clip_fraction",
    "logprob_gap",
    "ratio_p99",
    "sampled_tokens",
    "tokens_per_second",
    "dropped",
    "skipped_groups",
    "forgetting_kl",
)


def run_row(run: RunFolder) -> dict[str, Any]:
    """Return a run's row in the list of runs; ``problem`` names unreadable files."""
    try:
        result, problem = read_result(run)
        row = _row(run, result, None if result is None else result.effect)
    except AgentGymError as error:
        return {"name": run.path.name, "status": UNREADABLE, "problem": str(error)}
    return row | {"problem": f"{row['problem']} {problem}".strip()}


def _row(
    run: RunFolder, result: TrainingResult | None, effect: Effect | None
) -> dict[str, Any]:
    record = run.record()
    config = record["config"]
    row = {
        "name": run.path.name,
        "status": run_status(run.path, record),
        "problem": str(record.get("error", "")),
        "scenario": shown_name(str(config.get("scenario", ""))),
        "framework": config.get("framework"),
        "model": config.get("model"),
        "created": record.get("created"),
        "updated": record.get("updated"),
        "machine": machine_of(run.path),
    }
    if result is None:
        return row
    return row | {
        "stopped": result.stopped,
        "steps": result.steps,
        "episodes": result.episodes,
        "wall_seconds": result.wall_seconds,
        "before": _shares(result.baseline),
        "after": _shares(result.metrics),
        "verdict": None if effect is None else effect.verdict,
    }


def run_page(run: RunFolder) -> dict[str, Any]:
    """Return the data of a run's page: curves, measurements, findings and ledger."""
    evidence = read_evidence(run)
    result = evidence.result
    ledger = evidence.ledger if result is None else result.ledger
    return {
        **_row(run, result, evidence.effect),
        "config": TrainingConfig.flat(evidence.config),
        "curves": curves(evidence.steps),
        "validations": _validations(evidence.steps),
        "ledger": ledger.model_dump(mode="json") | {"adds_up": ledger.adds_up},
        "findings": [asdict(finding) for finding in diagnose(evidence)],
        "effect": _effect(evidence.effect, result),
        "weights_step": None if result is None else result.weights_step,
        "sets": _sets(evidence),
        "families": _families(evidence),
    }


def curves(steps: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return each training metric as a list over steps; None where it is missing."""
    return {name: [step.get(name) for step in steps] for name in _CURVES}


def _validations(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    measured = [step for step in steps if step.get("validation")]
    return [
        {"step": step["step"], **{n: step["validation"].get(n) for n in METRICS}}
        for step in measured
    ]


def _effect(
    effect: Effect | None, result: TrainingResult | None
) -> dict[str, Any] | None:
    """Return the sentences on the effect of training that the terminal shows, too."""
    if effect is None:
        return None
    better, worse = changes_words(effect)
    parts = [] if result is None else result.gain_words
    return {
        "words": verdict_words(effect, has_warm_start=bool(parts)),
        "parts": parts,
        "better": better,
        "worse": worse,
        "is_worse": bool(effect.worse),
    }


def _sets(evidence: Evidence) -> list[dict[str, Any]]:
    """Return the held-out sets with their metrics before and after training."""
    result = evidence.result
    if result is None:
        before = evidence.baseline
        if before is None:
            return []
        return [{"name": "held-out", "before": _shares(before), "after": None}]
    sets = {"held-out": (result.baseline, result.metrics), **result.breakdown}
    warm = {"held-out": result.warm_start, **result.warm_breakdown}
    found = []
    for name, (before, after) in sets.items():
        measured = {"before": before, "warm": warm.get(name), "after": after}
        k = min(each.k for each in measured.values() if each)
        shares = {
            at: each and _shares(each.at_most(k)) for at, each in measured.items()
        }
        found.append({"name": name, "tasks": after.tasks, **shares})
    return found


def _change(change: Change) -> str:
    """Describe a change beyond chance, e.g. ``"worse, p = 0.0012"``."""
    word = "better" if change.after > change.before else "worse"
    return f"{word}, {p_words(change.p_value)}"


def _families(evidence: Evidence) -> list[dict[str, Any]]:
    """Return each family's success before and after, the worst change first."""
    result = evidence.result
    before = evidence.baseline if result is None else result.baseline
    if before is None:
        return []
    after = None if result is None else result.metrics
    old = before.family_success()
    new = {} if after is None else after.family_success()
    effect = evidence.effect
    real = (*effect.better, *effect.worse) if effect else ()
    changes = {change.name: _change(change) for change in real if change.is_family}
    rows = [
        {
            "name": name,
            "before": _estimate(found),
            "after": _estimate(new[name]) if name in new else None,
            "change": changes.get(name, ""),
        }
        for name, found in old.items()
    ]
    return sorted(
        rows,
        key=lambda row: (
            (row["after"] or row["before"])["value"] - row["before"]["value"]
        ),
    )


def _estimate(found: Estimate) -> dict[str, Any]:
    return found.model_dump() | {"text": share_span(found)}


def _shares(metrics: Metrics) -> dict[str, Any]:
    found: dict[str, Any] = {name: _estimate(metrics[name]) for name in METRICS}
    sizes = {"tasks": metrics.tasks, "rollouts": metrics.rollouts, "k": metrics.k}
    return {**found, **sizes, "dropped": metrics.dropped}
