"""VllmPolicy: sample token ids with vLLM, and parse them in this process."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, NamedTuple

import aiohttp
import orjson

from agentgym.core.policy import ChatRequest, ChatResult, Policy
from agentgym.core.trajectory import Grammar
from agentgym.engines.tokens.chat_tokens import ChatTokens
from agentgym.engines.tokens.rendering import Prompt
from agentgym.errors import ContextLengthError, EngineError
from agentgym.models.http import (
    ModelClient,
    ServerAttempts,
    failure_message,
    overflow_message,
)
from agentgym.models.links import limited, read_answer
from agentgym.models.servers import Replicas

_PATH = "completions"
_SHOWN = 300


class _Asked(NamedTuple):
    """A request for vLLM, and the data to convert its answer.

    Attributes:
        prompt: The rendered prompt.
        body: The body of the HTTP request.
        version: Version of the weights when the request was made.
        grammar: The grammar that restricts the answer; None without one.
    """

    prompt: Prompt
    body: dict[str, Any]
    version: int
    grammar: Grammar | None


class VllmPolicy(Policy):
    """A policy that sends token ids to vLLM, and gets token ids back.

    This process itself renders the messages and parses the tool calls, exactly as for a
    model in this process. ``server`` is vLLM's base URL, e.g.
    ``http://127.0.0.1:8000/v1``.

    Attributes:
        version: Number of updates that the server's weights have had.
        failure: Why vLLM cannot answer any more; empty if it can.
    """

    def __init__(self, tokens: ChatTokens, server: str, key: str, model: str) -> None:
        self._tokens = tokens
        self._url, self._key = server, key
        self._model = model
        self.version = 0
        self.failure = ""
        self._clients: dict[asyncio.AbstractEventLoop, ModelClient] = {}

    @property
    def model_name(self) -> str:
        """Name of the model or adapter on the server."""
        return self._model

    def become(self, model: str, version: int) -> None:
        """Send the next requests to another model or adapter of the server.

        ``version`` is the number of updates that its weights have had.
        """
        self._model, self.version = model, version

    async def chat(self, request: ChatRequest) -> ChatResult:
        """Answer one request.

        Raises:
            ContextLengthError: The prompt leaves no token for an answer.
            EngineError: vLLM has ended or does not answer.
        """
        asked = self._asked(request)
        replicas = self._replicas()
        attempts = ServerAttempts(self._client(), request.session)
        try:
            async for attempt in attempts:
                async with attempt.at(replicas):
                    response = await attempt.post(_PATH, orjson.dumps(asked.body))
                    data = await read_answer(response)
                    if response.status >= 400:
                        raise _refused(response.status, data)
                    found = _choice(data)
                    result = self._result(request, asked, found)
                    attempt.end()
                    return result
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._lost(error) from error
        raise EngineError("vLLM gave no answer.")

    async def stream(self, request: ChatRequest) -> AsyncIterator[str | ChatResult]:
        """Yield pieces of the response's text while it is sampled, then the result."""
        asked = self._asked(request)
        content = self._tokens.growing(asked.prompt)
        whole: dict[str, Any] = {"token_ids": [], "logprobs": {"token_logprobs": []}}
        attempts = ServerAttempts(self._client(), request.session)
        try:
            async for attempt in attempts:
                async with attempt.at(self._replicas()):
                    sent = orjson.dumps(asked.body | {"stream": True})
                    response = await attempt.post(_PATH, sent, stream=True)
                    if response.status >= 400:
                        raise _refused(response.status, await read_answer(response))
                    assert isinstance(response, aiohttp.ClientResponse)
                    async with response, aclosing(_events(response)) as events:
                        async for choice in events:
                            attempts.has_begun = True
                            _extend(whole, choice)
                            for token in choice.get("token_ids") or ():
                                if piece := content.add(token):
                                    yield piece
                    attempt.end()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._lost(error) from error
        result = self._result(request, asked, whole)
        if rest := (result.content or "")[content.sent :]:
            yield rest
        yield result

    def room(self, request: ChatRequest) -> tuple[int, int]:
        """Return a prompt's number of tokens, and the number left in the context."""
        used = self._tokens.count(request)
        return used, self._tokens.context - used

    async def release(self) -> None:
        """Close the connections that the running event loop opened."""
        if client := self._clients.pop(asyncio.get_running_loop(), None):
            await client.close()

    def _client(self) -> ModelClient:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients[loop] = ModelClient(proxies=False)
        return self._clients[loop]

    def _replicas(self) -> Replicas:
        return Replicas((self._url,), self._model, self._key)

    def _asked(self, request: ChatRequest) -> _Asked:
        if self.failure:
            raise EngineError(self.failure)
        prompt, room = self._tokens.prompt(request)
        body = {
            "model": self._model,
            "prompt": prompt.ids,
            "max_tokens": min(request.max_tokens, room),
            "temperature": request.temperature,
            "seed": request.seed % 2**63,
            "stop_token_ids": sorted(self._tokens.stop_ids),
            "logprobs": 0,
            "return_token_ids": True,
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
        }
        if request.stop:
            body["stop"] = list(request.stop)
        grammar = self._tokens.grammars.of(request, prompt.end)
        if grammar is not None:
            body["structured_outputs"] = {"grammar": grammar.text}
        return _Asked(prompt, body, self.version, grammar)

    def _result(
        self, request: ChatRequest, asked: _Asked, choice: dict[str, Any]
    ) -> ChatResult:
        ids = choice.get("token_ids")
        given = choice.get("logprobs") or {}
        logprobs = given.get("token_logprobs")
        if not ids or not logprobs or len(ids) != len(logprobs):
            raise EngineError(
                "vLLM's answer has no token ids, or not as many log-probabilities. "
                "Give it no --tokens-only and no other version than the one that "
                "`agentgym engine install vllm` makes."
            )
        return self._tokens.result(
            request,
            asked.prompt,
            list(ids),
            [float(each) for each in logprobs],
            reason="length" if choice.get("finish_reason") == "length" else "stop",
            version=asked.version,
            grammar=asked.grammar,
        )

    def _lost(self, error: Exception) -> EngineError:
        why = self.failure or failure_message(error)
        return EngineError(f"vLLM at {self._url} did not answer: {why}")


def _choice(data: bytes) -> dict[str, Any]:
    try:
        choice = orjson.loads(data)["choices"][0]
    except (ValueError, LookupError, TypeError) as error:
        shown = data[:_SHOWN].decode(errors="replace")
        raise EngineError(f"vLLM's answer is not a completion: {shown!r}") from error
    if not isinstance(choice, dict):
        raise EngineError(f"vLLM's answer is not a completion: {choice!r:.300}")
    return choice


def _refused(status: int, data: bytes) -> EngineError:
    if overflow := overflow_message(data):
        return ContextLengthError(overflow)
    shown = data[:_SHOWN].decode(errors="replace")
    return EngineError(f"vLLM refused a request (status {status}): {shown}")


async def _events(response: aiohttp.ClientResponse) -> AsyncGenerator[dict[str, Any]]:
    """Yield the parts of a streamed completion (``choices`` in vLLM's events)."""
    held = b""
    async with aclosing(limited(response)) as parts:
        async for part in parts:
            *lines, held = (held + part).split(b"\n")
            for line in lines:
                value = line.removeprefix(b"data:").strip()
                if line.startswith(b"data:") and value != b"[DONE]":
                    said = orjson.loads(value)
                    if said.get("error"):
                        raise EngineError(f"vLLM failed: {said['error']!r:.300}")
                    for choice in said.get("choices") or ():
                        yield choice


def _extend(whole: dict[str, Any], choice: dict[str, Any]) -> None:
    """Add a part of a streamed completion to ``whole``, the parts so far."""
    whole["token_ids"] += choice.get("token_ids") or []
    logprobs = (choice.get("logprobs") or {}).get("token_logprobs")
    whole["logprobs"]["token_logprobs"] += logprobs or []
    whole["finish_reason"] = choice.get("finish_reason") or whole.get("finish_reason")
