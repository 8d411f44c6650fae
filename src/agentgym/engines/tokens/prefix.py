"""Compare the beginnings of token lists or texts."""

from collections.abc import Sequence


def common_prefix(first: Sequence[object], second: Sequence[object]) -> int:
    """Return the number of leading items that two sequences share."""
    limit = min(len(first), len(second))
    if first[:limit] == second[:limit]:  # fast, and the usual case
        return limit
    return next((i for i in range(limit) if first[i] != second[i]), limit)
