"""Python's cyclic collector in a process that serves for days."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (20_000, 20, 20)


@contextmanager
def calm_collector() -> Iterator[None]:
    """Exclude the existing objects from garbage collection inside the block.

    Most objects live as long as the process, and scanning them pauses requests. Only
    for a process that does nothing else meanwhile: an existing object that becomes part
    of an unused cycle stays until the end.
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
