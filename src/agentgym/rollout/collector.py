"""Python's cyclic collector in a process that serves for days."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (20_000, 20, 20)


@contextmanager
def calm_collector() -> Iterator[None]:
    """Keep the collector from looking through what exists now, again and again.

    What lives as long as the process is most of what it would look through, in pauses
    that requests would see. Only for a process that does nothing else meanwhile: what
    exists now, and becomes a cycle that nobody needs, stays until the end.
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
