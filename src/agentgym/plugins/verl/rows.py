"""Rows of training data, from the engine to verl's driver, and to tensors for verl.

Both import this module, in different environments, so it imports little.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

if TYPE_CHECKING:
    from agentgym.engines.base import TrainingBatch


class UpdateRow(TypedDict):
    """One sequence of training data, as it is sent to verl's driver in JSON."""

    ids: list[int]  # of prompt and responses, up to the last trained token
    start: int  # position of the first trained token, 1 or more
    # For each trained token: its position, its log-probability at sampling, and its
    # advantage. For ``ppo``, the return of its model call replaces the advantage.
    trained: list[tuple[int, float, float]]
    # For each trained token: the target of the value model (only for ``ppo``), and the
    # log-probability under the untrained model (only with a KL penalty).
    targets: NotRequired[list[float]]
    reference: NotRequired[list[float]]


# A row without trained tokens. It fills a batch whose rows cannot be divided equally
# among the workers.
EMPTY: UpdateRow = {"ids": [0, 0], "start": 1, "trained": []}
# verl's names of optional tensors, and the keys of their values in a row.
_FURTHER: dict[str, Literal["targets", "reference"]] = {
    "returns": "targets",
    "ref_log_prob": "reference",
}


def rows_of(batch: "TrainingBatch") -> list[UpdateRow]:
    """Convert each sequence to a row, without tokens after the last trained one."""
    rows: list[UpdateRow] = []
    for sequence in batch.sequences:
        positions = [token.position for token in sequence.trained]
        rows.append(
            {
                "ids": sequence.ids[: max(positions) + 1],
                "start": min(positions),
                "trained": [
                    (t.position, t.logprob, t.advantage) for t in sequence.trained
                ],
            }
        )
    return rows


def to_tensors(rows: Sequence[UpdateRow]) -> dict[str, Any]:
    """Convert rows to padded tensors (rows, tokens), under the names that verl uses.

    A row's tokens before its first trained token are the prompt, padded on the left.
    The other tokens are the response, padded on the right. ``response_mask`` is 1 for
    the trained tokens. The result has ``returns`` and ``ref_log_prob`` only if the rows
    have ``targets`` and ``reference``.
    """
    import torch

    count = len(rows)
    before = max(row["start"] for row in rows)
    after = max(len(row["ids"]) - row["start"] for row in rows)
    prompts = torch.zeros(count, before, dtype=torch.long)
    responses = torch.zeros(count, after, dtype=torch.long)
    attention = torch.zeros(count, before + after, dtype=torch.long)
    mask = torch.zeros(count, after, dtype=torch.long)
    advantages, sampled = torch.zeros(count, after), torch.zeros(count, after)
    more = {
        name: torch.zeros(count, after)
        for name, key in _FURTHER.items()
        if any(key in row for row in rows)
    }
    for place, row in enumerate(rows):
        ids, start = row["ids"], row["start"]
        prompts[place, before - start :] = torch.tensor(ids[:start])
        responses[place, : len(ids) - start] = torch.tensor(ids[start:])
        attention[place, before - start : before + len(ids) - start] = 1
        for position, logprob, advantage in row["trained"]:
            mask[place, position - start] = 1
            sampled[place, position - start] = logprob
            advantages[place, position - start] = advantage
        at = [position - start for position, _, _ in row["trained"]]
        for name, tensor in more.items():
            tensor[place, at] = torch.tensor(row.get(_FURTHER[name], []))
    return {
        "prompts": prompts,
        "responses": responses,
        "input_ids": torch.cat((prompts, responses), 1),
        "attention_mask": attention,
        "position_ids": (attention.cumsum(-1) - 1).clamp_min(0),
        "response_mask": mask,
        "advantages": advantages,
        "old_log_probs": sampled,
        **more,
    }


def divisible(rows: Sequence[UpdateRow], by: int) -> list[UpdateRow]:
    """Add empty rows until the number of rows is divisible by ``by``.

    An empty row has no trained tokens, so it does not change the loss.
    """
    return [*rows, *[EMPTY] * (-len(rows) % by)]
