"""For tests that assert in a loop: there must have been something to loop over."""

from collections.abc import Iterable


def some[T](found: Iterable[T]) -> list[T]:
    """Return what was found.

    Raises:
        AssertionError: It is nothing.
    """
    listed = list(found)
    assert listed
    return listed
