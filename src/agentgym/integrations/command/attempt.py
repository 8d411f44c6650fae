"""ProgramAttempts: run a program on tasks and return its answers."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any

from agentgym.core.background import call_in_thread
from agentgym.errors import ProgramError
from agentgym.integrations.command.endpoint import ModelEndpoint
from agentgym.integrations.command.session import Ask, ProgramSession
from agentgym.integrations.episode import Episode, EpisodeCut
from agentgym.programs.pool import SAID_ERROR, ProgramPool
from agentgym.programs.process import (
    MEMORY_MB,
    TOO_MUCH_OUTPUT,
    ProgramRun,
    new_folder,
)
from agentgym.programs.program import ProgramCommand, base_variables, write_task

_GRACE_S = 5.0


class ProgramAttempts:
    """Runs a program on the tasks of several episodes at the same time.

    By default, each task gets a new process. If the program takes several tasks per
    process, idle processes are reused, and a new process is started if all are busy.
    ``memory_mb`` limits a process and its children together, in megabytes;
    ``timeout_s`` limits an attempt, in wall seconds.
    """

    def __init__(
        self,
        program: ProgramCommand,
        model: str,
        ask: Ask,
        *,
        memory_mb: int = MEMORY_MB,
        timeout_s: float | None = None,
    ) -> None:
        self._program = program
        self._endpoint = ModelEndpoint(model)
        self._ask = ask
        self._memory_mb = memory_mb
        self._timeout_s = timeout_s
        most = program.tasks
        self._pool = None if most is None else ProgramPool(self._start, most)

    async def run(self, episode: Episode) -> str:
        """Run the program on an episode's task; return its answer.

        A process for one task is always ended, with its children, before this returns.
        A process for several tasks stays for the next task. It is only ended if this
        call is cancelled, or if it does not answer within 5 s after the episode is cut
        short.

        Raises:
            EpisodeCut: A limit ended the episode, e.g. after too many model calls.
            ProgramError: The program failed; the message says why.
        """
        await self._endpoint.start()
        session = ProgramSession(episode, self._ask)
        with (
            _folders(episode) as (folder, task_folder),
            self._endpoint.serve(session) as named,
        ):
            task = episode.task
            fields: dict[str, Any] = {"id": task.id, "instruction": task.instruction}
            fields["configurable"] = task.configurable
            file = write_task(task_folder, fields)
            variables = {
                **named,
                "AGENTGYM_TASK": str(file),
                "AGENTGYM_TASK_JSON": str(task_folder / "task.json"),
                "AGENTGYM_TASK_ID": task.id,
                "AGENTGYM_MODE": episode.mode,
            }
            came_to_end = False
            try:
                if self._pool is None:
                    answer = await self._in_new(
                        episode, folder, file, variables, session
                    )
                else:
                    line = {**fields, "folder": str(folder), "variables": variables}
                    answer = await self._in_pooled(self._pool, line, session)
                came_to_end = answer is not None
            finally:
                session.end(came_to_end=came_to_end)
        if answer is None:
            assert episode.cut is not None
            raise EpisodeCut(episode.cut.kind, episode.cut.detail)
        self._check(answer, session)
        return answer

    async def close(self) -> None:
        """End idle processes, and stop answering model calls."""
        if self._pool is not None:
            await call_in_thread(self._pool.close)
        await self._endpoint.close()

    def _start(self, folder: Path) -> ProgramRun:
        """Start a process for several tasks, in the working folder ``folder``.

        The process starts with an address that refuses every model call. Each task that
        it gets later contains the address for that task's model calls.
        """
        words = self._program.arguments("", folder)
        variables = {**base_variables(), **self._endpoint.nowhere()}
        return ProgramRun(words, folder, variables, memory_mb=self._memory_mb)

    async def _in_new(
        self,
        episode: Episode,
        folder: Path,
        file: Path,
        variables: dict[str, str],
        session: ProgramSession,
    ) -> str | None:
        instruction = episode.task.instruction
        words = self._program.arguments(instruction, file)
        # Node's readline gives a program no line that does not end.
        given = f"{instruction}\n".encode() if self._program.reads_input else b""
        variables = {**base_variables(), **variables}
        run = ProgramRun(words, folder, variables, memory_mb=self._memory_mb)
        work = partial(run.wait, given, self._timeout_s)
        try:
            ended = await _to_its_end(work, run, session)
        except ProgramError as error:
            if error.kind == TOO_MUCH_OUTPUT and session.has_answer:
                hint = self._program.ending_a_chat
                raise ProgramError(error.kind, f"{error}. {hint}") from None
            raise
        if ended is None:
            return None
        if ended.exit_code == 0:
            return ended.output.strip()
        if session.failure is not None:
            raise session.failure
        if ended.wanted_input and session.has_answer:
            return ended.output.strip()
        why = f"{self._program.words[0]}: {ended.why}"
        raise ProgramError("program: exit", why, is_crash=ended.is_crash)

    async def _in_pooled(
        self, pool: ProgramPool, line: dict[str, Any], session: ProgramSession
    ) -> str | None:
        taken = pool.take()
        work = partial(pool.ask, taken, line, self._timeout_s)
        try:
            answer = await _to_its_end(work, taken.run, session, grace_s=_GRACE_S)
        except ProgramError as error:
            if error.kind == SAID_ERROR and session.failure is not None:
                raise session.failure from error
            raise
        return None if answer is None else answer.strip()

    def _check(self, answer: str, session: ProgramSession) -> None:
        """Raise ProgramError if the program called no model, or gave no answer.

        A missing answer is only an error if the task needs one and the model's last
        answer has text.
        """
        name, episode = self._program.words[0], session.episode
        if episode.turns == 0:
            raise ProgramError(
                "program: no model call",
                f"{name} ended without asking the model: it must ask the address in "
                "OPENAI_BASE_URL or ANTHROPIC_BASE_URL, not another one",
            )
        if not answer and session.last_text.strip() and episode.needs_answer:
            how = "printed nothing on standard output"
            if self._pool is not None:
                how = "gave an empty answer"
            raise ProgramError(
                "program: no answer",
                f"{name} {how}, and the model's last answer was "
                f"{session.last_text.strip()!r:.120}",
            )


async def _to_its_end[T](
    work: Callable[[], T],
    run: ProgramRun,
    session: ProgramSession,
    grace_s: float = 0.0,
) -> T | None:
    """Wait for a program's result; return None if its episode is cut short.

    ``work`` waits for the program, in another thread. The process is killed if it does
    not finish in ``grace_s`` seconds after the cut.
    """
    waiting: asyncio.Future[T] = asyncio.ensure_future(call_in_thread(work))
    cut: asyncio.Future[Any] = asyncio.ensure_future(session.over.wait())
    either: set[asyncio.Future[Any]] = {waiting, cut}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not cut.done():
            return waiting.result()
        if grace_s:
            await asyncio.wait({waiting}, timeout=grace_s)
        if not waiting.done():
            run.kill(ProgramError("cut", "the rollout is over"))
            await asyncio.wait({waiting})
        waiting.exception()
        return None
    finally:
        cut.cancel()
        if not waiting.done():  # the caller was cancelled
            run.kill(ProgramError("cancelled", "the rollout was ended"))
            waiting.add_done_callback(lambda done: done.cancelled() or done.exception())


@contextmanager
def _folders(episode: Episode) -> Iterator[tuple[Path, Path]]:
    """Yield the episode's working folder, and a temporary folder for the task file."""
    made = new_folder()
    try:
        folder = episode.folder
        if folder is None:
            folder = made / "work"
            folder.mkdir()
        yield folder, made
    finally:
        rmtree(made, ignore_errors=True)
