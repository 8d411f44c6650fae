"""Convert rows to the padded tensors of verl's workers; needs torch."""

from collections.abc import Sequence
from typing import Any

from agentgym.engines.verl.protocol import UpdateRow

EMPTY: UpdateRow = {"ids": [0, 0], "start": 1, "trained": []}
"""A row without trained tokens, which fills a batch up to a multiple of the workers."""


def to_tensors(rows: Sequence[UpdateRow]) -> dict[str, Any]:
    """Return a batch in verl's names: prompts padded left, responses right.

    Tokens before the first trained one are the prompt; all others are the response.
    ``response_mask`` marks the trained tokens.

    Returns:
        Tensors of (rows, …): ``prompts``, ``responses``, ``input_ids``,
        ``attention_mask``, ``position_ids``, ``response_mask``, ``advantages`` and
        ``old_log_probs``.
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
    for place, row in enumerate(rows):
        ids, start = row["ids"], row["start"]
        prompts[place, before - start :] = torch.tensor(ids[:start])
        responses[place, : len(ids) - start] = torch.tensor(ids[start:])
        attention[place, before - start : before + len(ids) - start] = 1
        for position, logprob, advantage in row["trained"]:
            mask[place, position - start] = 1
            sampled[place, position - start] = logprob
            advantages[place, position - start] = advantage
    return {
        "prompts": prompts,
        "responses": responses,
        "input_ids": torch.cat((prompts, responses), 1),
        "attention_mask": attention,
        "position_ids": (attention.cumsum(-1) - 1).clamp_min(0),
        "response_mask": mask,
        "advantages": advantages,
        "old_log_probs": sampled,
    }


def divisible(rows: Sequence[UpdateRow], by: int) -> list[UpdateRow]:
    """Add empty rows until the number of rows is divisible."""
    return [*rows, *[EMPTY] * (-len(rows) % by)]
