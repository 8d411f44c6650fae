"""Variants of a test: the first ones are run each time, the others in a sweep."""

from collections.abc import Sequence
from typing import Any

import pytest

_SWEEP = pytest.mark.sweep


def first_of(values: Sequence[Any], count: int = 1) -> list[Any]:
    """Return values for ``parametrize``; those after the first ``count`` are a sweep.

    It is for variants that go the same way through the code that is tested, so that
    one of them guards it from day to day.
    """
    rest = (
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=_SWEEP)
        for value in values[count:]
    )
    return [*values[:count], *rest]
