"""Compute a finished training step's report, and its lines of ``credit.jsonl``."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import groupby
from statistics import fmean
from typing import Any

from agentgym.engines.base import UpdateFigures, UpdateMetrics
from agentgym.evaluate.events import StepReport
from agentgym.train.batch import Credited


def report_step(
    credited: Credited,
    update: UpdateMetrics,
    seconds: tuple[float, float],
    episodes: int,
    budget: int,
    left: float,
) -> StepReport:
    """Return the report of a step.

    ``seconds`` are those of its rollouts and its update.
    """
    rollouts = credited.rollouts
    scored = [t for t in rollouts if t.reward is not None]
    calls = [
        call
        for t in scored
        for answers in [t.form_answers()]
        for call in t.get_tool_calls()
        if call.id not in answers
    ]
    answers = [call for t in rollouts for call in t.model_calls]
    tokens = sum(len(answer.response_ids) for answer in answers)
    return StepReport(
        **{each.name: getattr(update, each.name) for each in fields(UpdateFigures)},
        episodes=episodes,
        budget=budget,
        reward=sum(t.reward or 0.0 for t in scored) / len(scored),
        success_rate=sum(bool(t.success) for t in scored) / len(scored),
        right_tool=_mean([t.right_tool for t in scored]),
        right_arguments=_mean([t.right_arguments for t in scored]),
        tool_reliability=sum(c.outcome == "ok" for c in calls) / max(1, len(calls)),
        trained_tokens=credited.batch.trained_tokens,
        sequences=credited.sequences,
        breaks=credited.breaks,
        sequences_masked=len(update.far_off),
        answers_cut=sum(a.finish_reason == "length" for a in answers)
        / max(1, len(answers)),
        skipped_groups=credited.skipped_groups,
        groups=len(credited.groups),
        dropped=len(rollouts) - len(scored),
        sampled_tokens=tokens,
        rollout_seconds=seconds[0],
        update_seconds=seconds[1],
        tokens_per_second=tokens / sum(seconds),
        seconds_left=left,
    )


def credit_lines(
    credited: Credited, verdicts: Mapping[str, Any], update: UpdateMetrics
) -> Iterator[dict[str, Any]]:
    """Yield one line of ``credit.jsonl`` per rollout: how its model calls were trained.

    Each call has ``bucket`` (trained, masked or dropped) and ``reason``. A trained call
    also has ``advantage``, and ``spans``: ranges [start, end) of trained tokens in its
    response. If the engine measured them, there are three more fields, in nats:
    ``gaps`` (for each trained token, the learner's log-probability minus that at
    sampling; empty if all are below 0.0005), and ``entropy`` and ``kl`` (means over the
    trained tokens). If a judge model ranked the rollout, ``judge`` has its verdict. An
    engine that reads the rollouts itself adds fields on how its own rules changed them.
    """
    trained: dict[int, dict[str, Any]] = {}
    for number, sequence in enumerate(credited.batch.sequences):
        measured = [
            values[number] if values else ()
            for values in (update.learned, update.entropies, update.moved)
        ]
        for call in sequence.calls:
            start, size = len(call.prompt_ids), len(call.response_ids)
            places = [token.position - start for token in sequence.trained]
            own = [n for n, place in enumerate(places) if 0 <= place < size]
            learned, entropies, moved = (
                [values[n] for n in own] if values else None for values in measured
            )
            found = trained[id(call)] = {
                "advantage": sequence.trained[own[0]].advantage if own else 0.0,
                "spans": _spans([places[n] for n in own]),
            }
            if learned is not None:
                sampled = [sequence.trained[n].logprob for n in own]
                gaps = [round(a - b, 3) for a, b in zip(learned, sampled, strict=True)]
                found["gaps"] = gaps if any(gaps) else []
            for name, values in ("entropy", entropies), ("kl", moved):
                if values:
                    found[name] = float(f"{fmean(values):.3g}")
    for rollout in credited.rollouts:
        buckets = credited.ledger[rollout.rollout_id]
        judged = verdicts.get(rollout.rollout_id)
        yield {
            "rollout": rollout.rollout_id,
            **({} if judged is None else {"judge": judged}),
            **(
                update.credit.remarks.get(rollout.rollout_id, {})
                if update.credit
                else {}
            ),
            "calls": [
                {"bucket": bucket.verb, "reason": bucket.reason}
                | trained.get(id(call), {})
                for call, bucket in zip(rollout.model_calls, buckets, strict=True)
            ],
        }


def _spans(places: Sequence[int]) -> list[tuple[int, int]]:
    """Convert ascending positions to ranges [start, end)."""
    found = []
    for _, run in groupby(enumerate(places), lambda pair: pair[1] - pair[0]):
        own = [place for _, place in run]
        found.append((own[0], own[-1] + 1))
    return found


def _mean(found: Sequence[float | None]) -> float | None:
    """Return the mean of the values that are not None; None if there are none."""
    known = [value for value in found if value is not None]
    return sum(known) / len(known) if known else None
