"""Await async code from sync code, and run sync code from async code."""

import contextvars
import inspect
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

_MOST_WAITING = 16
_WAITING: list[SimpleQueue[Callable[[], None]]] = []
"""The queues of threads of :func:`call_in_thread` that wait for a function."""

os.register_at_fork(after_in_child=_WAITING.clear)


def run_coroutine[T](main: Coroutine[Any, Any, T], **options: Any) -> T:
    """Run a coroutine in a new event loop, also where nest_asyncio patched asyncio."""
    import asyncio

    with asyncio.Runner(**options) as runner:
        return runner.run(main)


def in_background[T](awaitable: Awaitable[T]) -> T:
    """Run an awaitable from sync code; in another thread if this one has a loop."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run_coroutine(_await(awaitable))
    context = contextvars.copy_context()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(context.run, run_coroutine, _await(awaitable)).result()


async def _await[T](awaitable: Awaitable[T]) -> T:
    return await awaitable


@contextmanager
def no_running_loop() -> Iterator[None]:
    """Hide the running event loop, so that user code may call ``asyncio.run``."""
    import asyncio

    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)


async def call(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Await an async function, or run a sync one in a thread; return its result."""
    if inspect.iscoroutinefunction(function):
        return await function(*args, **named)
    found = await call_in_thread(function, *args, **named)
    return await found if inspect.isawaitable(found) else found


async def call_in_thread(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Run a sync function in a thread of its own and return its result."""
    # The caller may stop waiting: a function that never returns delays neither other
    # calls nor the exit of the process.
    import asyncio

    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()  # the caller may stop waiting
    context = contextvars.copy_context()

    def work() -> None:
        try:
            future.set_result(context.run(function, *args, **named))
        except (StopIteration, SystemExit) as error:  # asyncio cannot pass these on
            future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            future.set_exception(error)

    try:
        works = _WAITING.pop()
    except IndexError:
        works = SimpleQueue()
        thread = threading.Thread(
            target=_run_each, args=(works,), name="agentgym-tool", daemon=True
        )
        thread.start()
    works.put(work)
    return await asyncio.wrap_future(future)


def _run_each(works: SimpleQueue[Callable[[], None]]) -> None:
    while True:
        works.get()()
        if len(_WAITING) >= _MOST_WAITING:
            return
        _WAITING.append(works)


class ThreadsInContext(ThreadPoolExecutor):
    """Threads with the context variables of the code that gives them work."""

    # As an event loop's default threads, they let sync tools find their episode. Those
    # of an episode wait for each other: here are eight for each of 64 episodes.
    def __init__(self) -> None:
        super().__init__(512)

    def submit(self, work: Any, /, *args: Any, **named: Any) -> Any:
        """Run ``work`` in a thread, in a copy of the caller's context."""
        run = contextvars.copy_context().run
        return super().submit(run, work, *args, **named)
