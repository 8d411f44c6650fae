"""attempt: run a program on one task, from its start to its answer."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any

from agentgym.core.background import call_in_thread
from agentgym.errors import ProgramError
from agentgym.integrations.command.endpoint import ModelEndpoint
from agentgym.integrations.command.session import Ask, ProgramSession
from agentgym.integrations.episode import Episode, EpisodeCut
from agentgym.programs.process import MEMORY_MB, ProgramEnd, ProgramRun, new_folder
from agentgym.programs.program import ProgramCommand, base_variables, write_task


async def attempt(
    program: ProgramCommand,
    episode: Episode,
    endpoint: ModelEndpoint,
    ask: Ask,
    *,
    memory_mb: int = MEMORY_MB,
    timeout_s: float | None = None,
) -> str:
    """Run a program on an episode's task; return its answer.

    The program and its children are ended with the caller, with the episode, and at the
    latest when the program itself has ended.

    Raises:
        EpisodeCut: The policy made too many calls, or repeated the same failing one.
        ProgramError: The program failed; the message says why.
    """
    await endpoint.start()
    session = ProgramSession(episode, ask)
    with _folders(episode) as (folder, task_folder), endpoint.serve(session) as named:
        task = episode.task
        fields = {"id": task.id, "instruction": task.instruction}
        file = write_task(task_folder, {**fields, "configurable": task.configurable})
        variables = {
            **base_variables(),
            **named,
            "AGENTGYM_TASK": str(file),
            "AGENTGYM_TASK_JSON": str(task_folder / "task.json"),
            "AGENTGYM_TASK_ID": task.id,
            "AGENTGYM_MODE": episode.mode,
        }
        words = program.arguments(task.instruction, file)
        given = task.instruction.encode() if program.reads_input else b""
        run = ProgramRun(words, folder, variables, memory_mb=memory_mb)
        ended = await _to_its_end(run, given, session, timeout_s)
    if ended is None:
        assert episode.cut is not None
        raise EpisodeCut(episode.cut.kind, episode.cut.detail)
    return _answer_of(program, ended, session)


async def _to_its_end(
    run: ProgramRun, given: bytes, session: ProgramSession, timeout_s: float | None
) -> ProgramEnd | None:
    """Wait for a program; if its episode is cut short, end it and return None."""
    work = call_in_thread(run.wait, given, timeout_s)
    waiting: asyncio.Future[ProgramEnd] = asyncio.ensure_future(work)
    cut: asyncio.Future[Any] = asyncio.ensure_future(session.over.wait())
    either: set[asyncio.Future[Any]] = {waiting, cut}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not cut.done():
            return waiting.result()
        run.kill(ProgramError("cut", "the episode is over"))
        await asyncio.wait({waiting})
        waiting.exception()
        return None
    finally:
        cut.cancel()
        if not waiting.done():  # the caller was cancelled
            run.kill(ProgramError("cancelled", "the episode was ended"))
            waiting.add_done_callback(lambda done: done.cancelled() or done.exception())


def _answer_of(
    program: ProgramCommand, ended: ProgramEnd, session: ProgramSession
) -> str:
    episode = session.episode
    if ended.exit_code != 0:
        if session.failure is not None:
            raise session.failure
        raise ProgramError("program: exit", f"{program.words[0]}: {ended.why}")
    if episode.turns == 0:
        raise ProgramError(
            "program: no model call",
            f"{program.words[0]} ended without asking the model: it must ask the "
            "address in OPENAI_BASE_URL or ANTHROPIC_BASE_URL, not another one",
        )
    session.end()
    answer = ended.output.strip()
    if not answer and session.last_text.strip() and episode.needs_answer:
        raise ProgramError(
            "program: no answer",
            f"{program.words[0]} printed nothing on standard output, and the model's "
            f"last answer was {session.last_text.strip()!r:.120}",
        )
    return answer


@contextmanager
def _folders(episode: Episode) -> Iterator[tuple[Path, Path]]:
    """Yield the episode's working folder, and a folder for the task's files."""
    made = new_folder()
    try:
        folder = episode.folder
        if folder is None:
            folder = made / "work"
            folder.mkdir()
        yield folder, made
    finally:
        rmtree(made, ignore_errors=True)
