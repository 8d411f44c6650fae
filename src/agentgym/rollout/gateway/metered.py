"""Metered: the price of a paid model, checked before each request is sent to it."""

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

_TEMPLATE_TOKENS = 1_000
"""Most tokens that a provider adds to a request by its chat template."""
_LOOK_S = 0.02
_LOST = frozenset({502, 504})
"""Statuses of requests that may have been answered, and paid for, all the same."""


class Purse:
    """The money of a command: no more than its cap is ever given out.

    Each spend is reserved at the most that it can cost, and settled at its real cost.
    Safe to use from several threads.

    Args:
        cap: Most US dollars in all.
        spent: The part of it that was spent before.
    """

    def __init__(self, cap: float, spent: float = 0.0) -> None:
        self.cap, self.spent = cap, spent
        self._reserved, self._kept, self._open = 0.0, 0.0, 0
        self._lock = threading.Lock()

    @property
    def left(self) -> float:
        """US dollars that can still be reserved."""
        with self._lock:
            return max(0.0, self.cap - self._kept - self.spent - self._reserved)

    @property
    def is_waiting(self) -> bool:
        """Whether a spend is not settled yet, so that more may be left then."""
        with self._lock:
            return self._open > 0

    def reserve(self, dollars: float) -> bool:
        """Set dollars aside for a spend; return whether there were enough."""
        with self._lock:
            taken = self.spent + self._reserved + self._kept
            if dollars > 0 and taken + dollars > self.cap:
                return False
            self._reserved += dollars
            self._open += 1
            return True

    def settle(self, reserved: float, spent: float) -> None:
        """Count the real cost of a spend for which dollars were reserved."""
        with self._lock:
            self._open -= 1
            self._reserved = max(0.0, self._reserved - reserved) if self._open else 0.0
            self.spent += spent

    @contextmanager
    def kept_back(self, dollars: float) -> Iterator[None]:
        """Keep dollars for the time after the block."""
        with self._lock:
            self._kept += dollars
        try:
            yield
        finally:
            with self._lock:
                self._kept -= dollars


@dataclass
class Meter:
    """Counts and pays the tokens of one model.

    Attributes:
        purse: Who pays.
        read: US dollars per million prompt tokens, ``written`` of sampled ones.
        most_tokens: Of one answer.
        prompt_tokens: Counted so far, ``response_tokens`` of the answers.
        cost: US dollars so far.
        is_spent: Whether a request was not sent because it might have cost more than
            is left.
    """

    purse: Purse
    read: float = 0.0
    written: float = 0.0
    most_tokens: int = 1_024
    prompt_tokens: int = 0
    response_tokens: int = 0
    cost: float = 0.0
    is_spent: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def is_free(self) -> bool:
        """Whether its tokens cost nothing."""
        return not (self.read or self.written)

    def price(self, prompt: int, response: int) -> float:
        """Return the US dollars for so many tokens."""
        return (self.read * prompt + self.written * response) / 1e6

    def bound(self, request: bytes, answers: int = 1) -> float:
        """Return the most that a request can cost: no token is less than a byte."""
        most = len(request) + _TEMPLATE_TOKENS
        return self.price(most, self.most_tokens * answers)

    def reserve(self, bound: float) -> bool:
        """Set a request's bound aside; return whether the purse has it."""
        is_there = self.purse.reserve(bound)
        self.is_spent = self.is_spent or not (is_there or self.purse.is_waiting)
        return is_there

    def settle(self, bound: float, tokens: tuple[int, int] | None) -> None:
        """Count a request's tokens; its bound is its cost where they are not known."""
        cost = bound if tokens is None else self.price(*tokens)
        with self._lock:
            if tokens is not None:
                self.prompt_tokens += tokens[0]
                self.response_tokens += tokens[1]
            self.cost += cost
        self.purse.settle(bound, cost)

    @property
    def refusal(self) -> str:
        """Why a request was not sent."""
        return (
            f"The next request might cost more than the ${self.purse.left:.4f} that "
            f"--max-cost ${self.purse.cap:.2f} leaves, so it was not sent."
        )


@dataclass(frozen=True)
class MeteredEndpoint(Endpoint):
    """An endpoint whose tokens a meter counts and pays."""

    meter: Meter = field(repr=False, compare=False, kw_only=True)

    @classmethod
    def of(cls, endpoint: Endpoint, meter: Meter) -> "MeteredEndpoint":
        """Return an endpoint with a meter."""
        return cls(endpoint.servers, endpoint.api_key, endpoint.model, meter=meter)

    @property
    def limit(self) -> str:
        """The field of a request that limits the tokens of the answer."""
        is_openai = self.servers[0] == PROVIDERS["openai"]
        return "max_completion_tokens" if is_openai else "max_tokens"


class MeteredUpstream(ProviderUpstream):
    """Forwards the calls that its purse can pay for to a paid endpoint.

    A request that finds too little waits for those that are under way, and is refused
    if it still does; then no other is sent. Answers are limited in length, or their
    price would not be. A request that broke off is not sent again, as it may have been
    paid for; it counts with all that it could cost.
    """

    def __init__(self, endpoint: MeteredEndpoint, settings: GatewaySettings) -> None:
        super().__init__(endpoint, settings)
        self._meter, self._limit = endpoint.meter, endpoint.limit

    async def answer(self, call: ProxyCall) -> AsyncGenerator[bytes | CallOutcome]:
        """Forward a call that can be paid for."""
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
        """Refuse to send a request again that may have been paid for.

        Raises:
            ApiError: The server did not refuse the request with a status.
        """
        if ": status " not in why:
            raise ApiError(504, why, "upstream_error", "server_error")


def _tokens(answer: CallOutcome) -> tuple[int, int] | None:
    """Return the tokens that are paid for; None if they are not known."""
    if answer.status >= 400:
        return None if answer.status in _LOST else (0, 0)
    return tokens_of(answer.record.data.get("usage"))


def tokens_of(usage: Any) -> tuple[int, int] | None:
    """Return the tokens of prompt and answer in a server's ``usage``; None without."""
    counts = usage if isinstance(usage, dict) else {}
    found = counts.get("prompt_tokens"), counts.get("completion_tokens")
    prompt, response = found
    if type(prompt) is not int or type(response) is not int:
        return None
    return (prompt, response) if min(prompt, response) >= 0 else None
