"""Tune Python's garbage collector for a process that serves for days."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (20_000, 20, 20)


@contextmanager
def calm_collector() -> Iterator[None]:
    """Exclude the existing objects from garbage collection inside the block.

    Most objects live as long as the process, and scanning them pauses requests. Use it
    only where the block is all that the process does: an existing object that becomes
    part of an unused cycle is not freed before the end.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
