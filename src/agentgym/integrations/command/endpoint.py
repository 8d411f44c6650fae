"""ModelEndpoint: a local server for programs' model calls, in several model APIs.

Each attempt at a task has its own address. The attempt's ProgramSession passes requests
to the policy, counts them, and can cut the episode short.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from agentgym.core.files import parse_json
from agentgym.core.openai import DEFAULT_AGENT, ApiError
from agentgym.integrations.command.session import ProgramSession
from agentgym.models.dialects import DIALECTS
from agentgym.models.dialects.base import Dialect

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
