"""Await async code from sync code, and run sync code from async code."""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any


def in_background[T](awaitable: Awaitable[T]) -> T:
    """Wait for an awaitable from sync code, also inside a running event loop.

    In a running loop, as in a notebook, it runs in another thread, and the loop waits.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_await(awaitable))
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, _await(awaitable)).result()


async def _await[T](awaitable: Awaitable[T]) -> T:
    return await awaitable


@contextmanager
def no_running_loop() -> Iterator[None]:
    """Hide the running event loop from the block, so that ``asyncio.run`` works in it.

    For imported code that cannot know whether a loop runs. The loop waits meanwhile.
    """
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)


async def call(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Call a function: await an async one; run a sync one in a thread."""
    if inspect.iscoroutinefunction(function):
        return await function(*args, **named)
    found = await call_in_thread(function, *args, **named)
    return await found if inspect.isawaitable(found) else found


async def call_in_thread(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Run a sync function in a new thread and return its result.

    A thread that never ends is abandoned: it delays neither other calls nor the exit.
    """
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()  # the caller may stop waiting
    context = contextvars.copy_context()

    def work() -> None:
        try:
            future.set_result(context.run(function, *args, **named))
        except (
            StopIteration,
            SystemExit,
        ) as error:  # no future can hold these
            future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            future.set_exception(error)

    threading.Thread(target=work, name="agentgym-tool", daemon=True).start()
    return await asyncio.wrap_future(future)
