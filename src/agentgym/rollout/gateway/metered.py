"""Check the cost limit before each request to a paid model, and count its cost."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from agentgym.core.openai import ApiError
from agentgym.models.reference import PROVIDERS, Endpoint
from agentgym.rollout.gateway.protocol import GatewaySettings, ProxyCall, asked_tokens
from agentgym.rollout.gateway.remote import ProviderUpstream
from agentgym.rollout.gateway.upstream import CallOutcome

# Upper limit of the tokens that a provider's chat template adds to a request.
_TEMPLATE_TOKENS = 1_000
_LOOK_S = 0.02
# HTTP statuses of failed requests that the provider may still have billed.
_LOST = frozenset({502, 504})


class Purse:
    """The budget of one command (``--max-cost``), in US dollars. Thread-safe.

    Before a request is sent, its highest possible cost is reserved; afterwards, its
    real cost replaces the reservation. Costs and reservations together cannot exceed
    ``cap``. ``spent`` is the cost so far.
    """

    def __init__(self, cap: float, spent: float = 0.0) -> None:
        self.cap, self.spent = cap, spent
        self._reserved, self._kept, self._open = 0.0, 0.0, 0
        self._lock = threading.Lock()

    @property
    def left(self) -> float:
        """US dollars that requests can still reserve."""
        with self._lock:
            return max(0.0, self.cap - self._kept - self.spent - self._reserved)

    @property
    def is_waiting(self) -> bool:
        """Whether a request is running; its end may release reserved dollars."""
        with self._lock:
            return self._open > 0

    def reserve(self, dollars: float) -> bool:
        """Reserve dollars for a request; return whether enough were left."""
        with self._lock:
            taken = self.spent + self._reserved + self._kept
            if dollars > 0 and taken + dollars > self.cap:
                return False
            self._reserved += dollars
            self._open += 1
            return True

    def settle(self, reserved: float, spent: float) -> None:
        """Replace a request's reserved dollars by the dollars that it really cost."""
        with self._lock:
            self._open -= 1
            self._reserved = max(0.0, self._reserved - reserved) if self._open else 0.0
            self.spent += spent

    @contextmanager
    def kept_back(self, dollars: float) -> Iterator[None]:
        """Hold dollars back: inside the block, no request can reserve them."""
        with self._lock:
            self._kept += dollars
        try:
            yield
        finally:
            with self._lock:
                self._kept -= dollars


@dataclass
class Meter:
    """Counts the tokens and the cost of one model; ``purse`` limits the cost."""

    purse: Purse  # limits the cost of all models of one command
    read: float = 0.0  # price of a million prompt tokens in US dollars
    written: float = 0.0  # price of a million response tokens in US dollars
    most_tokens: int = 1_024  # of one answer
    prompt_tokens: int = 0
    response_tokens: int = 0
    cost: float = 0.0  # US dollars so far
    is_spent: bool = False  # a request was not sent, as it might have cost too much
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def price(self, prompt: int, response: int) -> float:
        """Return the cost in US dollars of these numbers of tokens."""
        return (self.read * prompt + self.written * response) / 1e6

    def bound(self, request: bytes, answers: int = 1) -> float:
        """Return the highest possible cost of a request, in US dollars.

        ``request`` is its JSON body, and ``answers`` the number of answers that it asks
        for. A token has at least one byte, so the body has at most as many tokens as
        bytes.
        """
        most = len(request) + _TEMPLATE_TOKENS
        return self.price(most, self.most_tokens * answers)

    def reserve(self, bound: float) -> bool:
        """Reserve a request's highest possible cost, or return False."""
        is_there = self.purse.reserve(bound)
        self.is_spent = self.is_spent or not (is_there or self.purse.is_waiting)
        return is_there

    def settle(self, bound: float, tokens: tuple[int, int] | None) -> None:
        """Replace the reserved dollars ``bound`` by the real cost of a request."""
        cost = bound if tokens is None else self.price(*tokens)
        with self._lock:
            if tokens is not None:
                self.prompt_tokens += tokens[0]
                self.response_tokens += tokens[1]
            self.cost += cost
        self.purse.settle(bound, cost)

    @property
    def refusal(self) -> str:
        """The error message for a request that the budget does not allow."""
        return (
            f"The next request might cost more than the ${self.purse.left:.4f} that "
            f"--max-cost ${self.purse.cap:.2f} leaves, so it was not sent."
        )


@dataclass(frozen=True)
class MeteredEndpoint(Endpoint):
    """A provider's endpoint, with a Meter that counts its tokens and cost."""

    meter: Meter = field(repr=False, compare=False, kw_only=True)

    @classmethod
    def of(cls, endpoint: Endpoint, meter: Meter) -> "MeteredEndpoint":
        """Return a copy of an endpoint with a Meter."""
        return cls(endpoint.servers, endpoint.api_key, endpoint.model, meter=meter)

    @property
    def limit(self) -> str:
        """Name of the request field for the maximum number of answer tokens."""
        is_openai = self.servers[0] == PROVIDERS["openai"]
        return "max_completion_tokens" if is_openai else "max_tokens"


class MeteredUpstream(ProviderUpstream):
    """Forwards model calls to a paid endpoint while the cost limit allows them.

    If too little money is left for a request, it waits until the cost of the running
    requests is known. If the money is still too little, this request and all later ones
    are refused. The length of answers is limited, to limit their cost. If the
    connection breaks during a request, the provider may have billed it: it is not sent
    again, and its highest possible cost is counted.
    """

    def __init__(self, endpoint: MeteredEndpoint, settings: GatewaySettings) -> None:
        super().__init__(endpoint, settings)
        self._meter, self._limit = endpoint.meter, endpoint.limit

    async def answer(self, call: ProxyCall) -> AsyncGenerator[bytes | CallOutcome]:
        """Reserve a call's highest possible cost, then forward the call."""
        meter = self._meter
        most = min(asked_tokens(call.body, meter.most_tokens), meter.most_tokens)
        kept = {
            k: v for k, v in call.body.items() if k not in ("max_tokens", self._limit)
        }
        call = replace(call, body=kept | {self._limit: most})
        several = call.body.get("n")
        answers = several if isinstance(several, int) else 1
        bound = meter.bound(orjson.dumps(call.body), max(1, answers))
        while not meter.reserve(bound):
            if meter.is_spent:
                self._failure = self._failure or meter.refusal
                raise ApiError(402, self._failure, "cost_limit", "server_error")
            await asyncio.sleep(_LOOK_S)
        tokens: tuple[int, int] | None = None
        try:
            async with aclosing(super().answer(call)) as items:
                async for item in items:
                    if isinstance(item, CallOutcome):
                        tokens = _tokens(item)
                    yield item
        finally:
            meter.settle(bound, tokens)

    def retried(self, why: str) -> None:
        """Allow a retry if the server answered with an error status; else raise.

        Without an answer, the request may have been billed, so it is not sent again.
        """
        if ": status " not in why:
            raise ApiError(504, why, "upstream_error", "server_error")


def _tokens(answer: CallOutcome) -> tuple[int, int] | None:
    """Return the numbers of billed prompt and response tokens; None if unknown."""
    if answer.status >= 400:
        return None if answer.status in _LOST else (0, 0)
    return tokens_of(answer.record.data.get("usage"))


def tokens_of(usage: Any) -> tuple[int, int] | None:
    """Return the prompt and response token counts of ``usage``; None if invalid."""
    counts = usage if isinstance(usage, dict) else {}
    prompt, response = counts.get("prompt_tokens"), counts.get("completion_tokens")
    if type(prompt) is not int or type(response) is not int:
        return None
    return (prompt, response) if min(prompt, response) >= 0 else None
