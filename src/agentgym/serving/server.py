"""AgentServer: an OpenAI-compatible server for a trained agent's weights."""

import secrets
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Self

import orjson
from aiohttp import web

from agentgym.core.agent import Trained
from agentgym.core.openai import ApiError
from agentgym.core.policy import Policy
from agentgym.errors import UsageError
from agentgym.models.dialects import CONVERTED
from agentgym.models.dialects.base import Dialect
from agentgym.rollout.gateway.http import (
    Admission,
    Keys,
    Listener,
    Request,
    Route,
    check_address,
    why_unusable,
)
from agentgym.rollout.gateway.protocol import (
    STREAM_HEADERS,
    GatewaySettings,
    answer_json,
    asked_temperature,
    asked_tokens,
    invalid,
    json_object,
    model_card,
    models_reply,
    reply,
)
from agentgym.rollout.gateway.upstream import (
    Chat,
    EndedAnswer,
    asked_form,
    chat_request,
)
from agentgym.security.redaction import quoted

_ENDPOINTS = (
    "POST /v1/chat/completions, /v1/responses and /v1/messages, and GET /v1/models"
)


class AgentServer:
    """Answers chat completions on a thread of this process until it is closed.

    It also answers requests of OpenAI's Responses API and Anthropic's Messages API. The
    server has an address as soon as it is created, and answers once it is started::

        with AgentServer(["coding"]).start(policy) as server:
            client = OpenAI(base_url=server.url, api_key="none")

    Args:
        models: Model names that requests may use; the first is the default.
        roles: Roles of a team that have an adapter each. For each NAME in ``models``,
            the model ``NAME/ROLE`` uses that role's adapter, and ``NAME`` no adapter.
        host: Address to listen on. An address that other machines can reach, such as
            ``0.0.0.0``, needs an ``api_key``.
        port: Port to listen on; 0 takes a free port.
        api_key: Bearer key that requests must have; None requires no key.
        temperature: Default temperature; 0 is greedy.
        max_tokens: Default limit for the tokens of an answer.
        grace_s: Seconds for which :meth:`close` waits for running answers.

    Attributes:
        models: All model names, those with a role included.
        api_key: The argument ``api_key``.

    Raises:
        UsageError: The address cannot be used, or needs a key.
    """

    def __init__(
        self,
        models: Sequence[str],
        *,
        roles: Sequence[str] = (),
        host: str = "127.0.0.1",
        port: int = 0,
        api_key: str | None = None,
        temperature: float = 0.0,
        max_tokens: int = 256,
        grace_s: float = 10.0,
    ) -> None:
        check_address(host, port, api_key, how="with --api-key or AGENTGYM_API_KEY")
        names = dict.fromkeys(models)
        self._roles = {f"{name}/{role}": role for name in names for role in roles}
        self.models, self.api_key = (*names, *self._roles), api_key
        self._temperature, self._max_tokens = temperature, max_tokens
        self._policy: Policy | None = None
        settings = GatewaySettings(host=host, port=port)
        self._admission = Admission(settings)
        self._listener = Listener(
            [
                Route("POST", "/v1/chat/completions", self._complete),
                *(
                    Route("POST", f"/v1/{each.path}", partial(self._convert, each))
                    for each in CONVERTED
                ),
                Route("GET", "/v1/models", self._list),
                Route("GET", "/v1/models/{model:.+}", self._show),
                Route("*", "/{path:.*}", self._nothing),
            ],
            settings,
            keys=Keys(api_key or ""),
            name="agentgym-server",
            grace_s=grace_s,
        )
        try:
            self._listener.bind()
        except OSError as error:
            raise UsageError(why_unusable(host, port, error)) from None

    @classmethod
    def of(cls, trained: Trained, name: str, **options: Any) -> Self:
        """Load the weights of a trained agent and serve them.

        A request without a temperature or token limit gets the value with which the
        agent was evaluated.
        """
        spec = trained.spec
        server = cls(
            [name, name.partition("@")[0], spec.scenario],
            roles=trained.roles,
            temperature=spec.temperature,
            max_tokens=spec.max_tokens,
            **options,
        )
        try:
            return server.start(trained.load_policy())
        except BaseException:
            server.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The base URL for OpenAI clients, such as ``http://127.0.0.1:41234/v1``."""
        return f"{self._listener.url}/v1"

    def start(self, policy: Policy) -> Self:
        """Start to answer requests with ``policy``.

        :meth:`close` closes the policy, too.
        """
        self._policy = policy
        self._listener.start()
        return self

    def close(self) -> None:
        """Stop the server; abort answers that still run after ``grace_s`` seconds.

        Ctrl-C aborts running answers at once.
        """
        try:
            self._listener.close()
        finally:  # the policy's decoding thread must end before the interpreter
            if self._policy is not None:
                self._policy.close()

    async def _complete(self, request: Request) -> web.StreamResponse:
        body = json_object(await request.read())
        chat = self._chat(body)
        response = web.StreamResponse(headers=STREAM_HEADERS)
        async with self._admission, aclosing(chat.answer()) as items:
            async for item in items:
                data = item.payload if isinstance(item, EndedAnswer) else item
                if isinstance(item, EndedAnswer) and not response.prepared:
                    return answer_json(data, item.status)
                if not response.prepared:
                    await response.prepare(request)
                if data:
                    await response.write(data)
        await response.write_eof()
        return response

    async def _convert(self, dialect: Dialect, request: Request) -> web.Response:
        """Answer a request in another API's format, e.g. OpenAI's Responses API."""
        try:
            body = json_object(await request.read())
            chat = self._chat(dialect.read(body))
            async with self._admission, aclosing(chat.answer()) as items:
                ended = [item async for item in items][-1]
            assert isinstance(ended, EndedAnswer)
            if ended.status >= 400:
                return answer_json(ended.payload, ended.status)
            completion = orjson.loads(ended.payload)
            if body.get("stream"):
                data = dialect.stream(completion, body)
                return web.Response(body=data, headers=STREAM_HEADERS)
            return reply(dialect.answer(completion, body))
        except ApiError as error:
            return reply(dialect.error(error), error.status)

    def _chat(self, body: dict[str, Any]) -> Chat:
        """Prepare the answer to a request; raise ApiError if a field is unsupported."""
        assert self._policy is not None
        body = {"model": self.models[0], **body}
        self._require(body["model"])
        return asked_chat(
            self._policy,
            body,
            agent=self._roles.get(body["model"], ""),
            temperature=self._temperature,
            max_tokens=self._max_tokens,
        )

    def _require(self, model: Any) -> None:
        if model not in self.models:
            known = ", ".join(self.models)
            message = f"The model {quoted(model)} does not exist."
            message += f" This server has: {known}."
            raise ApiError(404, message, "model_not_found")

    async def _list(self, request: Request) -> web.Response:
        return models_reply(self.models)

    async def _show(self, request: Request) -> web.Response:
        name = request.names["model"]
        self._require(name)
        return reply(model_card(name))

    async def _nothing(self, request: Request) -> web.Response:
        message = f"{request.method} {request.path} does not exist on this server. "
        message += f"It answers {_ENDPOINTS}."
        raise ApiError(404, message, "not_found")


def asked_chat(
    policy: Policy,
    body: dict[str, Any],
    *,
    temperature: float,
    max_tokens: int,
    agent: str = "",
    in_training: bool = False,
) -> Chat:
    """Prepare the answer to a chat completion request, without generating tokens yet.

    ``temperature`` and ``max_tokens`` are used if the request does not set them.
    ``agent`` is the role whose adapter answers; empty if roles have no adapters. With
    ``in_training``, sampling options, e.g. ``top_p``, are ignored as in training.
    """
    body, form = asked_form(body)
    asked = chat_request(
        body,
        form,
        agent=agent,
        in_training=in_training,
        temperature=asked_temperature(body, temperature),
        max_tokens=asked_tokens(body, max_tokens),
        seed=_seed(body),
    )
    return Chat(
        policy,
        asked,
        body,
        call_id=f"chatcmpl-{secrets.token_hex(12)}",
        model=body["model"],
        shows_ids=bool(body.get("return_token_ids")),
        form=form.name,
        one_call=asked.one_call and not in_training,
    )


def _seed(body: Mapping[str, Any]) -> int:
    asked = body.get("seed")
    if asked is None:
        return secrets.randbits(63)
    if type(asked) is not int:
        raise invalid(f"seed = {quoted(asked)} is not a whole number.")
    return asked
