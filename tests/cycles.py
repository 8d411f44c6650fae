"""For tests that nothing waits for the cyclic collector."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def only_collected() -> Iterator[list[Any]]:
    """Yield a list that holds, after the block, what only the collector would free."""
    found: list[Any] = []
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
