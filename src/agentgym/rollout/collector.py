"""Tune Python's garbage collector for a process that serves for days."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (20_000, 20, 20)


@contextmanager
def calm_collector() -> Iterator[None]:
    """Exclude the existing objects from garbage collection inside the block.

    Most objects live as long as the process, and scanning them pauses requests. Use
    this only if the process does nothing else after the block: existing objects in an
    unused reference cycle are not freed before the block ends.
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
