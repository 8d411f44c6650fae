"""Convert rows (training sequences) to padded tensors for verl's workers."""

from collections.abc import Sequence
from typing import Any, Literal

from agentgym.plugins.verl.protocol import UpdateRow

EMPTY: UpdateRow = {"ids": [0, 0], "start": 1, "trained": []}
"""A row without trained tokens. It fills a batch whose rows cannot be divided equally
among the workers."""
_FURTHER: dict[str, Literal["targets", "reference"]] = {
    "returns": "targets",
    "ref_log_prob": "reference",
}
"""verl's names of optional tensors, and the keys of their values in a row."""


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
