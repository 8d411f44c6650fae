"""ProgramAttempts: run a program on tasks and return its answers."""

import asyncio
import json
import secrets
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any

from aiohttp import web

from agentgym.core.background import call_in_thread
from agentgym.core.files import parse_json
from agentgym.core.openai import DEFAULT_AGENT, ApiError
from agentgym.errors import ProgramError
from agentgym.integrations.episode import Episode, EpisodeCut
from agentgym.models.dialects import DIALECTS
from agentgym.models.dialects.base import Dialect
from agentgym.plugins.programs.session import Ask, ProgramSession
from agentgym.programs.process import (
    MEMORY_MB,
    TOO_MUCH_OUTPUT,
    ProgramRun,
    is_own_fault,
    new_folder,
)
from agentgym.programs.program import ProgramCommand, base_variables, write_task

_MOST_BODY = 64 << 20
_MOST_ROLE = 1000
_NO_TASK = "no-task"


class ModelEndpoint:
    """Answers the model calls of many programs on one local port.

    Programs see the model under the name ``model``. Use the endpoint only in the event
    loop in which it was started.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._sessions: dict[str, ProgramSession] = {}
        self._runner: web.AppRunner | None = None
        self._url = ""
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Listen on a free port; a second call does nothing."""
        async with self._starting:
            if self._runner is None:
                self._runner = await self._listen()

    async def _listen(self) -> web.AppRunner:
        app = web.Application(client_max_size=_MOST_BODY)
        app.router.add_post("/{token}/reward", self._reward)
        app.router.add_get("/{token}/v1/models", self._models)
        app.router.add_get("/{token}/v1/models/{name:.+}", self._models)
        for dialect in DIALECTS:
            app.router.add_post(f"/{{token}}/v1/{dialect.path}", self._asked(dialect))
        app.router.add_route("*", "/{path:.*}", self._nothing)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        self._url = f"http://{host}:{port}"
        return runner

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @contextmanager
    def serve(self, session: ProgramSession) -> Iterator[dict[str, str]]:
        """Answer an attempt's model calls within the block.

        Yield the environment variables that give the program its own address and key.
        """
        token = secrets.token_urlsafe(18)
        self._sessions[token] = session
        try:
            yield self._variables(token)
        finally:
            del self._sessions[token]

    def nowhere(self) -> dict[str, str]:
        """Return the environment variables for a program that has no task yet.

        The address in these variables refuses every request. Their keys replace the
        user's own provider keys, so that the program cannot read the user's keys.
        """
        return self._variables(_NO_TASK)

    def _variables(self, token: str) -> dict[str, str]:
        base = f"{self._url}/{token}"
        return {
            "OPENAI_BASE_URL": f"{base}/v1",
            "OPENAI_API_BASE": f"{base}/v1",
            "OPENAI_API_KEY": token,
            "OPENAI_MODEL": self._model,
            "ANTHROPIC_BASE_URL": base,
            "ANTHROPIC_API_KEY": token,
            "ANTHROPIC_AUTH_TOKEN": token,
            "ANTHROPIC_MODEL": self._model,
            "AGENTGYM_REWARD_URL": f"{base}/reward",
        }

    def _session(self, request: web.Request) -> ProgramSession:
        """Return the session of a request; raise ApiError if there is none.

        There is none before a program's first task, and after the end of an episode.
        """
        token = request.match_info.get("token", "")
        found = self._sessions.get(token)
        if token == _NO_TASK:
            message = (
                "This address answers no request. A program that takes several tasks "
                "asks at the OPENAI_BASE_URL in the `variables` of each task's line."
            )
            raise ApiError(404, message, "no_task")
        if found is None:
            raise ApiError(404, "The rollout of this address is over.", "episode_over")
        return found

    def _asked(self, dialect: Dialect) -> Callable[[web.Request], Awaitable[Any]]:
        """Return the request handler of one model API."""

        async def answer(request: web.Request) -> web.Response:
            try:
                session = self._session(request)
                body = _parsed(await request.read())
                asked = dialect.read(body)
                completion = _shown(await session.answer(asked, _role(request, body)))
                if body.get("stream"):
                    return web.Response(
                        body=dialect.stream(completion, body),
                        content_type="text/event-stream",
                        headers={"Cache-Control": "no-cache"},
                    )
                return web.json_response(dialect.answer(completion, body))
            except ApiError as error:
                return web.json_response(dialect.error(error), status=error.status)

        return answer

    async def _reward(self, request: web.Request) -> web.Response:
        try:
            self._session(request).post_reward(_parsed(await request.read()))
        except ApiError as error:
            return web.json_response(error.body, status=error.status)
        return web.json_response({"status": "ok"})

    async def _models(self, request: web.Request) -> web.Response:
        card = {"id": self._model, "object": "model", "created": 0}
        card["owned_by"] = "agentgym"
        if "name" in request.match_info:
            return web.json_response(card)
        return web.json_response({"object": "list", "data": [card]})

    async def _nothing(self, request: web.Request) -> web.Response:
        paths = ", ".join(f"v1/{dialect.path}" for dialect in DIALECTS)
        path = request.path.partition("/v1/")[2] or request.path
        message = f"{path:.80} is not answered in training. There is: {paths}."
        error = ApiError(404, message, "not_found")
        return web.json_response(error.body, status=error.status)


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        found = parse_json(raw.decode())
    except ValueError as error:
        raise ApiError(400, f"The body is not JSON: {error}", "invalid_json") from None
    if not isinstance(found, dict):
        raise ApiError(400, "The body is not a JSON object.", "invalid_json")
    return found


def _role(request: web.Request, body: Mapping[str, Any]) -> str:
    """Return the agent's name, from the header ``X-Agent-ID`` or the field ``user``.

    Without a printable name in them, return the default name.
    """
    named = request.headers.get("X-Agent-ID") or body.get("user")
    if not isinstance(named, str) or not named.isprintable():
        return DEFAULT_AGENT
    return named[:_MOST_ROLE] or DEFAULT_AGENT


def _shown(completion: dict[str, Any]) -> dict[str, Any]:
    """Return a completion without its token ids, which programs do not need."""
    choices = [
        {k: v for k, v in choice.items() if k != "token_ids"}
        for choice in completion["choices"]
    ]
    kept = {k: v for k, v in completion.items() if k != "prompt_token_ids"}
    return {**kept, "choices": choices}


# A process that takes several tasks reads each as one line from standard input, and
# writes its answer as one line to standard output:
#     {"id": "line-3", "instruction": "…", "folder": "/…", "variables": {…}}
#     {"answer": "…"}
# It has one task at a time. After {"error": "…"} the attempt has failed and the process
# gets the next task. After any other line, or too long a time, a new process gets it.
_SAID_ERROR = "program: error"
"""``ProgramError.kind`` of an error that the program itself has reported."""


@dataclass
class PooledProgram:
    """A running program that attempts several tasks; ``had`` is the number so far."""

    run: ProgramRun
    folder: Path
    had: int = 0

    def close(self) -> None:
        """End the process and its children, and remove its folder."""
        self.run.close()
        rmtree(self.folder, ignore_errors=True)


def _answer_in(line: bytes) -> dict[str, str]:
    """Return the ``answer`` or the ``error`` in a line of a program's output."""
    text = line.decode("utf-8", "replace")
    try:
        found = parse_json(text)
    except ValueError:
        found = None
    said = found if isinstance(found, dict) else {}
    for key in ("answer", "error"):
        if isinstance(value := said.get(key), str):
            return {key: value}
    raise ProgramError(
        "program: line",
        f'{text!r:.120} is not an answer to a task, as in {{"answer": "…"}} or '
        '{"error": "…"}: write other output to standard error',
    )


class ProgramPool:
    """Reuses a program's process for up to ``most`` tasks. Thread-safe."""

    def __init__(self, start: Callable[[Path], ProgramRun], most: int) -> None:
        self._start = start
        self._most = most
        self._idle: list[PooledProgram] = []
        self._is_closed = False
        self._lock = threading.Lock()

    def take(self) -> PooledProgram:
        """Return an idle process for one task; start a new one if none is idle."""
        while True:
            with self._lock:
                found = self._idle.pop() if self._idle else None
            if found is None:
                return self._started()
            if found.run.is_alive:
                return found
            found.close()

    def _started(self) -> PooledProgram:
        folder = new_folder()
        try:
            return PooledProgram(self._start(folder), folder)
        except ProgramError:
            rmtree(folder, ignore_errors=True)
            raise

    def ask(
        self, taken: PooledProgram, task: Mapping[str, Any], timeout_s: float | None
    ) -> str:
        """Send a task to a process from :meth:`take`; end it after a wrong reply."""
        goes_on = False
        taken.had += 1
        try:
            said = taken.run.ask(json.dumps(task).encode(), timeout_s, _answer_in)
            goes_on = True
        finally:
            with self._lock:
                goes_on = goes_on and taken.had < self._most and not self._is_closed
                if goes_on:
                    self._idle.append(taken)
            if not goes_on:
                taken.close()
        if "error" in said:
            own = is_own_fault(said["error"])
            raise ProgramError(_SAID_ERROR, said["error"], is_crash=own)
        return said["answer"]

    def close(self) -> None:
        """End idle processes now, and each busy process at the end of its task."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for each in idle:
            each.close()


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
            if error.kind == _SAID_ERROR and session.failure is not None:
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
