"""ProviderUpstream: answers from a model that runs somewhere else, to be measured."""

from collections.abc import AsyncIterator
from typing import Any

from agentlightning.schemas import Model

from agentgym.core.openai import ApiError
from agentgym.models.reference import KEY_REFUSED, Endpoint, refusal
from agentgym.rollout.gateway.forwarding import ForwardingUpstream
from agentgym.rollout.gateway.protocol import GatewaySettings, ProxyCall
from agentgym.rollout.gateway.upstream import Answer

_NO_CREDIT = 402
_NOT_UNDERSTOOD = frozenset({400, 404, 405, 422})
_REFUSALS_AT_FIRST = 3


class ProviderUpstream(ForwardingUpstream):
    """Forwards to one endpoint with its key, and sees when there is no use in it.

    The agent's request goes out as it is, under the model's name there: sampling is
    the agent's or the provider's own. A refused key or an empty account ends it all;
    so do three requests that are not understood before any was. From then on no
    request is sent.

    Args:
        endpoint: Server, key and model.
        settings: Tries, timeouts and waits.
    """

    def __init__(self, endpoint: Endpoint, settings: GatewaySettings) -> None:
        super().__init__(settings)
        self._endpoint = endpoint
        self._has_answered = False
        self._refusals = 0
        self._failure: str | None = None

    @property
    def model_name(self) -> str:
        """The model's name at its provider."""
        return self._endpoint.model

    @property
    def failure(self) -> str | None:
        """Why it will answer no more."""
        return self._failure

    async def answer(self, call: ProxyCall) -> Answer:
        """Forward a call, unless it is known to be of no use.

        Raises:
            ApiError: The provider refused earlier calls for good.
        """
        self._refuse_if_failed()
        answer = await super().answer(call)
        self._judge(answer)
        return answer

    async def stream(self, call: ProxyCall) -> AsyncIterator[bytes | Answer]:
        """Pass the provider's events on as they come.

        Raises:
            ApiError: As :meth:`answer`.
        """
        self._refuse_if_failed()
        async for item in super().stream(call):
            if isinstance(item, Answer):
                self._judge(item)
            yield item

    def _server(self, call: ProxyCall) -> Model:
        return Model(model=self._endpoint.model, endpoint=self._endpoint.base_url)

    def _prepare(self, call: ProxyCall) -> dict[str, Any]:
        body = {**call.body, "model": self._endpoint.model}
        if body.get("stream"):  # tokens are counted by what the server says
            body.setdefault("stream_options", {"include_usage": True})
        return body

    def _headers(self) -> dict[str, str]:
        key = self._endpoint.api_key
        return {"Authorization": f"Bearer {key}"} if key else {}

    def _refuse_if_failed(self) -> None:
        if self._failure is not None:
            raise ApiError(503, self._failure, "provider_refused", "server_error")

    def _judge(self, answer: Answer) -> None:
        """Note whether there is any use in asking on."""
        if answer.status < 400:
            self._has_answered = True
            return
        said = _message(answer)
        code = _error(answer).get("code")
        where = f"The model server at {self._endpoint.base_url}"
        if answer.status in KEY_REFUSED:
            self._failure = refusal(self._endpoint.base_url, answer.status, said)
        elif answer.status == _NO_CREDIT or code == "insufficient_quota":
            self._failure = f"{where} wants to be paid (status {answer.status}): {said}"
        elif answer.status in _NOT_UNDERSTOOD and code != "context_length_exceeded":
            self._refusals += 1
            if not self._has_answered and self._refusals >= _REFUSALS_AT_FIRST:
                self._failure = (
                    f"{where} takes no request for {self._endpoint.model!r} (status "
                    f"{answer.status}): {said}"
                )


def _error(answer: Answer) -> dict[str, Any]:
    """Return OpenAI's error object; empty if the server has another shape."""
    error = answer.record.response.get("error")
    return error if isinstance(error, dict) else {}


def _message(answer: Answer) -> str:
    said = str(_error(answer).get("message") or answer.record.response)
    return " ".join(said.split())[:300]
