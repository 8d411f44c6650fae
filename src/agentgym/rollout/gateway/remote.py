"""Forward model calls over HTTP: to servers of the trained policy, or a provider."""

from abc import abstractmethod
from collections.abc import AsyncGenerator
from contextlib import aclosing
from operator import is_
from typing import Any, NamedTuple, Self

import aiohttp
import orjson

from agentgym.core.openai import CONTEXT_LENGTH, ApiError, Completion
from agentgym.core.policy import ServedPolicy
from agentgym.errors import ContextLengthError, NoServerError
from agentgym.models.answers import AnswerCache
from agentgym.models.http import (
    ModelClient,
    Replicas,
    ServerAttempts,
    failure_message,
    overflow_message,
)
from agentgym.models.links import limited, read_answer
from agentgym.models.reference import KEY_REFUSED, Endpoint, refusal
from agentgym.rollout.gateway.protocol import (
    GatewaySettings,
    ProxyCall,
    engine_error,
    load_json,
)
from agentgym.rollout.gateway.upstream import (
    CallOutcome,
    Exchange,
    Upstream,
    chat_request,
    check_for_policy,
)
from agentgym.rollout.store.store import Store
from agentgym.security.redaction import Redactor, beginning, get_logger, redacted

logger = get_logger(__name__)


# Fields whose later value replaces the earlier one; other texts are joined.
_SAID_ONCE = ("finish_reason", "id", "role", "routed_experts", "stop_reason", "type")


class StreamAssembler:
    """Rebuilds a complete answer from a server's stream of events (SSE)."""

    def __init__(self) -> None:
        self._body: dict[str, Any] = {}
        self._choice: dict[str, Any] = {"index": 0, "finish_reason": None}
        self._message: dict[str, Any] = {"role": "assistant", "content": None}
        self._calls: dict[int, dict[str, Any]] = {}
        self.is_done = False  # whether [DONE] has arrived
        self.is_ended = False  # whether the empty line after it has arrived, too

    def feed(self, lines: bytes) -> None:
        """Add complete lines of the stream; raise ValueError if they are malformed."""
        for line in lines.split(b"\n")[:-1]:
            if not line.startswith(b"data:"):
                self.is_ended |= self.is_done and not line.strip()
                continue
            value = line[5:].strip()
            if value == b"[DONE]":
                self.is_done = True
            else:
                try:
                    self._take(load_json(value))
                except (AttributeError, KeyError, TypeError) as error:
                    message = f"a part of it has an unknown shape ({error})"
                    raise ValueError(message) from None

    @property
    def error(self) -> Any:
        """The error that the server sent in the stream, or None."""
        return self._body.get("error") or None

    @property
    def response(self) -> dict[str, Any]:
        """The answer so far, as the body of a response without streaming."""
        if self.error:
            return self._body
        choice = {"logprobs": None, **self._choice}
        if "text" not in choice:
            choice["message"] = self._message
            if self._calls:
                calls = [self._calls[index] for index in sorted(self._calls)]
                choice["message"] = {**self._message, "tool_calls": calls}
        return {**self._body, "choices": [choice]}

    def _take(self, chunk: dict[str, Any]) -> None:
        for key, value in chunk.items():
            if key == "object":
                self._body[key] = str(value).removesuffix(".chunk")
            elif key != "choices" and (value is not None or key not in self._body):
                self._body[key] = value
        for choice in chunk.get("choices") or ():
            if choice.pop("index", 0) == 0:
                delta = choice.pop("delta", None) or {}
                for call in delta.pop("tool_calls", None) or ():
                    empty = {"name": "", "arguments": ""}
                    whole = {"id": "", "type": "function", "function": empty}
                    index = call.pop("index", None)
                    if index is None:  # not all servers number their calls
                        function = call.get("function") or {}
                        begins = bool(call.get("id") or function.get("name"))
                        index = max(max(self._calls, default=-1) + begins, 0)
                    if not isinstance(index, int):
                        raise TypeError(f"a tool call's index is {index!r:.40}")
                    _grow(self._calls.setdefault(index, whole), call)
                _grow(self._message, delta)
                _grow(self._choice, choice)


def _grow(whole: dict[str, Any], part: dict[str, Any]) -> None:
    """Merge ``part`` into ``whole``: extend texts and lists, replace other values."""
    for key, value in part.items():
        before = whole.get(key)
        if value is None or (key in _SAID_ONCE and not value):
            continue
        if before is None or key in _SAID_ONCE:
            whole[key] = value
        elif isinstance(value, dict):
            _grow(before, value)
        elif isinstance(value, list):
            before.extend(value)
        else:
            whole[key] = before + value if isinstance(value, str) else value


_LOOSE = "utf-8", "surrogateescape"
_NO_CREDIT = 402
_NOT_UNDERSTOOD = frozenset({400, 404, 405, 422})
_REFUSALS_AT_FIRST = 3
# Request fields that servers of a policy under training also get, in addition to the
# messages, the tools and the sampling.
_PASSED_ON = ("stream", "stream_options", "stop", "user", "chat_template_kwargs")


class Forwarded(NamedTuple):
    """A request to send: the servers to ask, the version of their weights, the body."""

    replicas: Replicas
    version: int | None
    body: dict[str, Any]


class ForwardingUpstream(Upstream):
    """Forwards model calls over HTTP; subclasses choose servers and request bodies.

    A failed call is sent again, if possible to another server (see
    :class:`ServerAttempts`), unless the agent has already received a part of the
    answer. If a conversation exceeds the model's context, the agent gets OpenAI's error
    code, even if the server sent another error.
    """

    _proxies = True  # whether HTTPS_PROXY and the like count

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings

    @abstractmethod
    def prepare(self, call: ProxyCall) -> Forwarded:
        """Return the request to send; called again before each retry."""

    @property
    def troubles(self) -> list[str]:
        """Messages about servers that get no calls, or got none for a while."""
        return self._client.pool.troubles

    def retried(self, why: str) -> None:
        """Handle a failure before the call is sent again; raise to prevent that."""

    async def __aenter__(self) -> Self:
        self._client = ModelClient(
            tries=self._settings.upstream_attempts,
            backoff_s=self._settings.upstream_backoff_s,
            timeout_s=self._settings.upstream_timeout_s,
            proxies=self._proxies,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def answer(self, call: ProxyCall) -> AsyncGenerator[bytes | CallOutcome]:
        """Yield the bytes of a streamed answer as they come, then a CallOutcome."""
        sent = Exchange(call, "", "", None, b"")

        def retry(why: str) -> None:
            self.retried(why)
            sent.retries += 1
            logger.warning("%s", why)

        attempts = ServerAttempts(self._client, call.session, retry)
        try:
            async for attempt in attempts:
                replicas, sent.version, body = self.prepare(call)
                sent.request = data = orjson.dumps(body)
                sent.model = replicas.model
                async with attempt.at(replicas) as server:
                    sent.endpoint = server.url
                    response = await attempt.post(call.path, data, stream=call.streams)
                    async with response:
                        if not (
                            call.streams
                            and isinstance(response, aiohttp.ClientResponse)
                            and response.content_type == "text/event-stream"
                        ):
                            payload = await read_answer(response)
                            status = response.status
                            answer, problem = _whole(
                                sent, status, payload, attempts.tried
                            )
                            if status < 400:
                                attempt.end(problem)
                            yield answer
                            return
                        items = _passed_on(sent, attempts, response)
                        async with aclosing(items):
                            async for item in items:
                                yield item
        except NoServerError as error:
            message = ApiError(503, str(error), "no_servers", "server_error")
            if not sent.endpoint:
                raise message from None
            yield sent.refusal(message)
        except ContextLengthError as error:
            yield sent.refusal(engine_error(error), has_begun=attempts.has_begun)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            lost = _lost(sent, error, attempts.tried)
            yield sent.refusal(lost, has_begun=attempts.has_begun)


class RemoteUpstream(ForwardingUpstream):
    """Forwards model calls to the policy's servers, e.g. vLLM; asks for token ids.

    The servers come from ``source``: a policy that names its servers, or the store in
    which a trainer, e.g. Agent Lightning's, registered them. If the store has none, the
    setting ``upstreams`` is used. Only servers with the highest registered version of
    the weights get calls. A server that was unreachable, or did not list the model,
    gets calls again after new weights were sent or the server was registered again.

    If ``source`` is a policy, only the gateway sets the sampling, so that
    log-probabilities are comparable to the learner's. For the same reason, an agent
    cannot request a ``response_format``, and a required tool call is not enforced.
    """

    def __init__(self, source: ServedPolicy | Store, settings: GatewaySettings) -> None:
        super().__init__(settings)
        self._source = source
        self._proxies = isinstance(source, Store)
        self._seen: list[Any] = [None]
        self._weights: dict[str, object] = {}
        self._version: int | None = None
        self._replicas = Replicas((), "")

    @property
    def failure(self) -> str | None:
        """Why the policy's servers cannot answer any more; None if they can."""
        message = "" if isinstance(self._source, Store) else self._source.failure
        return message or None

    @property
    def model_name(self) -> str:
        """The model name of the policy, or of the registered servers."""
        source, settings = self._source, self._settings
        return (settings if isinstance(source, Store) else source).model_name

    def prepare(self, call: ProxyCall) -> Forwarded:
        """Return the request with the gateway's sampling, and the servers to ask."""
        settings = self._settings
        replicas, version = self._servers()
        asked = call.body
        if not isinstance(self._source, Store):
            asked = _of_policy(call)
            if variables := dict(self._source.template_variables):
                own = asked.get("chat_template_kwargs") or {}
                asked["chat_template_kwargs"] = variables | own
        body = asked | settings.sampling(call)
        body |= {"model": replicas.model, "return_token_ids": True}
        body.pop("max_completion_tokens", None)
        if call.mode == "train" and settings.include_log_probs:
            body["logprobs"] = True
        return Forwarded(replicas, version, body)

    def _servers(self) -> tuple[Replicas, int | None]:
        source, name = self._source, self.model_name
        seen: list[Any]
        if isinstance(source, Store):
            seen = source.models(name)
        else:
            seen = [name, source.version, *source.servers]
        if len(seen) != len(self._seen) or not all(map(is_, seen, self._seen)):
            self._replicas = self._known(name)
            self._seen = seen
        if not self._replicas.urls:
            where = "register one at /api/models, or name them in the policy"
            message = f"No servers available for model {name!r}; {where}."
            raise ApiError(503, message, "no_servers", "server_error")
        return self._replicas, self._version

    def _known(self, name: str) -> Replicas:
        """Return the servers of a model; retry failed ones that have new weights."""
        source, settings = self._source, self._settings
        weights: dict[str, object]
        if isinstance(source, ServedPolicy):
            self._version = source.version
            weights = dict.fromkeys(source.servers, (name, source.version))
            found = Replicas(tuple(weights), name, source.api_key, source.version > 0)
        elif registered := source.models(name):
            self._version = max(model.version for model in registered)
            newest = (m for m in registered if m.version == self._version)
            weights = {model.endpoint: id(model) for model in newest}
            found = Replicas(tuple(weights), name, trains=True)
        else:
            self._version, weights = 0, {}
            found = Replicas(settings.upstreams, name, settings.upstream_key)
        for url, have in weights.items():
            if self._weights.get(url) != have:
                self._client.pool.renew(url)
        self._weights = weights
        return found


class ProviderUpstream(ForwardingUpstream):
    """Forwards model calls to a provider's endpoint; stops after a final refusal.

    In the agent's request, the model's name is replaced. If the agent sets no
    temperature, the setting ``provider_temperature`` is used; if that is None, the
    provider's default. A streamed request also asks for the number of tokens. Final
    refusals are a refused key, an empty account, and three invalid requests before the
    first answer. After a final refusal, no request is sent.
    """

    def __init__(self, endpoint: Endpoint, settings: GatewaySettings) -> None:
        super().__init__(settings)
        self._endpoint = endpoint
        self._replicas = Replicas(endpoint.servers, endpoint.model, endpoint.api_key)
        self._failure: str | None = None
        self._has_answered = False
        self._refusals = 0

    @property
    def failure(self) -> str | None:
        """The message of the final refusal, or None."""
        return self._failure

    @property
    def model_name(self) -> str:
        """The model's name at its provider."""
        return self._endpoint.model

    async def answer(self, call: ProxyCall) -> AsyncGenerator[bytes | CallOutcome]:
        """Forward a call; raise an ApiError after a final refusal."""
        if self.failure is not None:
            raise ApiError(503, self.failure, "provider_refused", "server_error")
        async with aclosing(super().answer(call)) as items:
            async for item in items:
                if isinstance(item, CallOutcome):
                    self._judge(item)
                yield item

    def prepare(self, call: ProxyCall) -> Forwarded:
        """Return the agent's request with the model's name at the provider."""
        body = call.body | {"model": self._endpoint.model}
        own = self._settings.provider_temperature
        if own is not None and body.get("temperature") is None:
            body["temperature"] = own
        if call.streams:  # the server is to count the tokens
            body.setdefault("stream_options", {"include_usage": True})
        return Forwarded(self._replicas, 0, body)

    def _judge(self, answer: CallOutcome) -> None:
        status = answer.status
        if status < 400:
            self._has_answered = True
            return
        record = answer.record
        error, body = record.error, record.completion.body
        code = error.get("code")
        said = " ".join(beginning(str(error.get("message") or body), 300).split())
        url = record.data["server"]["endpoint"]
        where = f"The model server at {url}"
        if status in KEY_REFUSED:
            self._failure = refusal(url, status, said)
        elif status == _NO_CREDIT or code == "insufficient_quota":
            self._failure = f"{where} requires payment (status {status}): {said}"
        elif status in _NOT_UNDERSTOOD and code != CONTEXT_LENGTH:
            self._refusals += 1
            if not self._has_answered and self._refusals >= _REFUSALS_AT_FIRST:
                self._failure = (
                    f"{where} refuses requests for {self._endpoint.model!r} (status "
                    f"{status}): {said}"
                )


_CACHE = "cache"  # recorded as the server's address if an answer came from the cache


class CachedUpstream(ProviderUpstream):
    """Answers repeated requests at temperature 0 from a cache; not used in training.

    A cached answer has the same bytes as the provider's first answer, with its token
    ids and log-probabilities. Errors are not cached.
    """

    def __init__(
        self, endpoint: Endpoint, settings: GatewaySettings, cache: AnswerCache
    ) -> None:
        super().__init__(endpoint, settings)
        self._cache = cache

    async def answer(self, call: ProxyCall) -> AsyncGenerator[bytes | CallOutcome]:
        """Yield the cached answer, or the provider's answer, which is then cached."""
        asked = super().answer(call)
        key = None
        if call.mode != "train":
            key = self._cache.key(call.path, self.prepare(call).body)
        if key is None:
            async with aclosing(asked) as items:
                async for item in items:
                    yield item
            return
        async with self._cache.turn(key):
            if (kept := self._cache.get(key)) is not None:
                for item in self._again(call, kept):
                    yield item
                return
            parts: list[bytes] = []
            async with aclosing(asked) as items:
                async for item in items:
                    if isinstance(item, bytes):
                        parts.append(item)
                    else:
                        parts.append(item.payload)
                        if item.status < 400:
                            self._cache.keep(key, b"".join(parts))
                    yield item

    def _again(self, call: ProxyCall, kept: bytes) -> list[bytes | CallOutcome]:
        """Convert the cached bytes ``kept`` to the items that :meth:`answer` yields."""
        replicas, version, body = self.prepare(call)
        sent = Exchange(call, replicas.model, _CACHE, version, orjson.dumps(body))
        if kept.lstrip().startswith(b"{"):
            return [sent.answer(load_json(kept), kept, is_whole=True)]
        stream = StreamAssembler()
        stream.feed(kept)
        return [b"", sent.answer(stream.response, kept)]


def _of_policy(call: ProxyCall) -> dict[str, Any]:
    """Return the fields of a request to send to servers of a policy under training.

    The field ``strict`` of tools is removed, because a server that enforces a schema
    would change the log-probabilities.
    """
    check_for_policy(call)
    body = call.body
    request = chat_request(body, in_training=True)
    made: dict[str, Any] = {"messages": request.messages}
    for tool in request.tools:
        function = {k: v for k, v in tool["function"].items() if k != "strict"}
        made.setdefault("tools", []).append({**tool, "function": function})
    return made | {name: body[name] for name in _PASSED_ON if name in body}


async def _passed_on(
    sent: Exchange, attempts: ServerAttempts, response: aiohttp.ClientResponse
) -> AsyncGenerator[bytes | CallOutcome]:
    """Yield the bytes of a server's stream as they arrive, then a CallOutcome."""
    stream = StreamAssembler()
    held: list[bytes] = []
    end = b""
    async with aclosing(limited(response)) as pieces:
        async for data in pieces:
            lines, newline, rest = data.rpartition(b"\n")
            if not newline:
                held.append(data)
                continue
            lines, held = b"".join([*held, lines]), [rest]
            try:
                stream.feed(lines + newline)
            except ValueError as error:
                attempts.end(str(error))
                raise
            if stream.error:
                overflow = overflow_message(orjson.dumps(stream.error))
                if overflow is not None:
                    raise ContextLengthError(overflow)
                lines = redacted(lines.decode(*_LOOSE)).encode(*_LOOSE)
            if stream.is_done:
                end += lines + newline
            else:
                attempts.has_begun = True
                yield lines + newline
            if stream.is_ended:
                break
    if not stream.is_done:
        raise aiohttp.ClientPayloadError("the stream ended before [DONE]")
    problem = None if stream.error else Completion(stream.response).problem
    attempts.end(problem)
    if not attempts.has_begun:
        yield b""
    if problem is not None:
        raise ValueError(f"the answer is not a completion: {problem}")
    yield sent.answer(stream.response, end, _status_of_stream(stream.error))


def _whole(
    sent: Exchange, status: int, payload: bytes, tried: str
) -> tuple[CallOutcome, str | None]:
    """Return the outcome of an answer without streaming, and its problem or None."""
    if status == 400 and (overflow := overflow_message(payload)) is not None:
        raise ContextLengthError(overflow)
    if status >= 500 and tried:
        error = ApiError(status, tried, "upstream_error", "server_error")
        return sent.refusal(error), None
    is_good = status < 400
    what, problem = "JSON", None
    try:
        body = load_json(payload)
        what = "a completion"
        if isinstance(body, dict):
            said = Completion(body)
            problem = (said.problem or said.length_problem) if is_good else None
            if problem is None:
                answer = sent.answer(body, payload, status, is_whole=True)
                if not is_good:  # keep the server's message
                    clean = Redactor.of_environment().written(payload.decode())
                    answer = answer._replace(payload=clean.encode())
                return answer, None
    except ValueError as error:
        problem = str(error)
    why = f" ({problem})" if problem else ""
    text = beginning(payload.decode(errors="replace"), 200)
    problem = f"{status}, not {what}{why}"
    message = f"The model server {sent.endpoint} answered {problem}: {text!r}"
    status = 502 if is_good else status
    refusal = ApiError(status, message, "upstream_error", "server_error")
    return sent.refusal(refusal), problem


def _lost(sent: Exchange, error: Exception, tried: str) -> ApiError:
    where = f"The model server {sent.endpoint}"
    if isinstance(error, TimeoutError):
        message = tried or f"{where} timed out."
        return ApiError(504, message, "upstream_timeout", "server_error")
    message = tried or f"{where} failed ({failure_message(error)})."
    return ApiError(502, message, "upstream_error", "server_error")


def _status_of_stream(error: Any) -> int:
    """Return the HTTP status for an error in a stream; 200 if there is no error."""
    if not error:
        return 200
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 502
