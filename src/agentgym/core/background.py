"""Waiting for async code from sync code, wherever that runs."""

import asyncio
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor


def in_background[T](awaitable: Awaitable[T]) -> T:
    """Wait for an awaitable from sync code, also inside a running event loop.

    Inside one, as in a notebook, it runs in another thread, which the loop waits for.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_await(awaitable))
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, _await(awaitable)).result()


async def _await[T](awaitable: Awaitable[T]) -> T:
    return await awaitable
