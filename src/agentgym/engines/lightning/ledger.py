"""Compute from the rows of Agent Lightning's batch which model calls were trained."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentgym.core.ledger import NO_VARIANCE, TRAINED, Bucket
from agentgym.core.trajectory import ModelCall, RolloutStatus, Trajectory
from agentgym.engines.base import OwnCredit, TrainedToken, TrainingSequence

LEFT_OUT = "its row was beyond a multiple of the mini-batch"
REPEATED = "its prompt was asked again, and the last answer counts"
TOO_LONG_PROMPT = "its prompt is longer than a row"
NO_TOKENS = "no token ids were recorded"


@dataclass
class _Row:
    """One row of a batch: consecutive model calls of a rollout, and their tokens."""

    calls: list[ModelCall]
    ids: list[int] = field(default_factory=list)

    @property
    def prompt(self) -> int:
        """Number of tokens of the first call's prompt."""
        return len(self.calls[0].prompt_ids)


def own_credit(
    rollouts: Sequence[Trajectory],
    rows: Sequence[Mapping[str, Any]],
    limit: int,
    fill_value: float,
) -> OwnCredit:
    """Find out which model calls of a step were trained, and with which tokens.

    Args:
        rollouts: The step's rollouts.
        rows: The rows of the step's update, from :func:`.hooks.rows_of`; empty if the
            trainer skipped the update.
        limit: Most tokens of a row's prompt, and most tokens after the prompt.
        fill_value: The reward that the trainer gives to a rollout without a reward.
    """
    sequences: list[TrainingSequence] = []
    ledger: dict[str, list[Bucket]] = {}
    groups = {
        name: n for n, name in enumerate(dict.fromkeys(r.group for r in rollouts))
    }
    remarks: dict[str, Mapping[str, Any]] = {}
    for rollout in rollouts:
        name = rollout.rollout_id
        trained = [row for row in rows if row["rollout"] == name]
        left = Counter((row["prompt"], row["response"]) for row in trained)
        advantage = trained[0]["advantage"] if trained else 0.0
        buckets = {
            id(call): Bucket("masked", NO_TOKENS) for call in rollout.model_calls
        }
        kept = _last_of_each_prompt(rollout.model_calls)
        read = {id(call) for call in kept}
        for call in rollout.model_calls:
            if call.prompt_ids and call.response_ids and id(call) not in read:
                buckets[id(call)] = Bucket("masked", REPEATED)
        merged = _merged(kept)
        for row in merged:
            key = row.prompt, min(len(row.ids) - row.prompt, limit)
            bucket = Bucket("masked", LEFT_OUT)
            if row.prompt > limit:
                bucket = Bucket("masked", TOO_LONG_PROMPT)
            elif left[key]:
                left[key] -= 1
                bucket = Bucket("masked", NO_VARIANCE)  # it adds 0 to the loss
                if advantage:
                    bucket = TRAINED
                    group = groups[rollout.group]
                    sequences.append(_sequence(row, group, advantage, limit))
            buckets |= {id(call): bucket for call in row.calls}
        ledger[name] = [buckets[id(call)] for call in rollout.model_calls]
        remarks[name] = {
            "counted": {
                "reward": trained[0]["reward"] if trained else None,
                "crashed": rollout.status is RolloutStatus.DROPPED,
                "filled": fill_value if rollout.reward is None and trained else None,
                "rows": len(merged),
                "trained_rows": len(trained),
            }
        }
    return OwnCredit(sequences, ledger, remarks)


def _last_of_each_prompt(calls: Sequence[ModelCall]) -> list[ModelCall]:
    """Return the model calls that Agent Lightning reads.

    It reads only calls with recorded tokens, and of several calls with equal prompts
    only the last.
    """
    kept: dict[tuple[int, ...], ModelCall] = {}
    for call in calls:
        if call.prompt_ids and call.response_ids:
            key = tuple(call.prompt_ids)
            kept.pop(key, None)
            kept[key] = call
    return list(kept.values())


def _merged(calls: Sequence[ModelCall]) -> list[_Row]:
    """Merge calls into rows, as Agent Lightning does.

    A call joins the previous row if its prompt begins with all tokens of that row.
    """
    rows: list[_Row] = []
    for call in calls:
        last = rows[-1] if rows else None
        if last is None or list(call.prompt_ids[: len(last.ids)]) != last.ids:
            last = _Row([])
            rows.append(last)
        last.calls.append(call)
        last.ids = [*call.prompt_ids, *call.response_ids]
    return rows


def _sequence(row: _Row, group: int, advantage: float, limit: int) -> TrainingSequence:
    """Convert a row to a sequence; keep ``limit`` tokens after the first prompt."""
    end = row.prompt + limit
    made = TrainingSequence(row.calls[0].agent, group, row.ids[:end])
    for call in row.calls:
        start = len(call.prompt_ids)
        made.trained += [
            TrainedToken(position, logprob, advantage)
            for position, logprob in enumerate(call.logprobs, start)
            if position < end
        ]
        made.calls.append(call)
    return made
