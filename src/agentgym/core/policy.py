"""A policy: a model that answers chat completions with its exact tokens."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentgym.core.files import Beat
from agentgym.core.trajectory import Grammar, RequestedCall
from agentgym.errors import UnsupportedError


@dataclass(frozen=True)
class ChatRequest:
    """One chat completion request to the policy.

    Attributes:
        messages: OpenAI-shaped messages.
        tools: OpenAI-shaped tools.
        temperature: 0 is greedy.
        max_tokens: Most tokens to sample.
        seed: Seed of this request's random numbers.
        agent: Name of the agent of a team that asks; selects its adapter if the policy
            has several.
        session: Shared by all requests of one agent in one rollout attempt: exact ids
            of earlier turns are reused if the rendered text continues them.
        wants_call: Whether the answer must be a tool call.
        one_call: Whether that answer may have one call only.
        form: For an answer with a JSON schema: name of the tool whose arguments are the
            answer's content; else empty.
        is_strict: Whether every part of that schema must hold; otherwise parts that a
            grammar cannot express are ignored.
    """

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = field(default_factory=list)
    temperature: float = 1.0
    max_tokens: int = 256
    seed: int = 0
    agent: str = ""
    session: str = ""
    wants_call: bool = False
    one_call: bool = False
    form: str = ""
    is_strict: bool = True


@dataclass(frozen=True)
class ChatResult:
    """The policy's answer with its exact tokens.

    Attributes:
        prompt_ids: Token ids that the policy saw.
        response_ids: Token ids that it sampled, the end token included.
        logprobs: Natural log-probabilities under the sampling distribution, one
            per response token.
        content: Text for the user: outside tool calls and reasoning; None if there
            is none.
        tool_calls: Its tool calls. An unreadable one becomes a call of
            ``malformed_call``, a tool that no agent has.
        finish_reason: ``stop``, ``tool_calls`` or ``length``.
        model_version: Number of updates that the policy had had.
        reasoning: The text of its reasoning, without marks.
        grammar: The grammar that the response was sampled under; None if every token
            was allowed.
    """

    prompt_ids: list[int]
    response_ids: list[int]
    logprobs: list[float]
    content: str | None
    tool_calls: list[RequestedCall]
    finish_reason: str
    model_version: int
    reasoning: str = ""
    grammar: Grammar | None = None


class Policy(ABC):
    """A model that answers chat completions. It can be called from any event loop.

    Attributes:
        gives_forms: Whether an answer with a JSON schema is requested as a tool call.
        failure: Why it cannot answer any more; empty while it can.
    """

    gives_forms = True
    failure: str = ""

    @property
    @abstractmethod
    def model_name(self) -> str:
        """The name under which the gateway offers the policy."""

    @abstractmethod
    async def chat(self, request: ChatRequest) -> ChatResult:
        """Answer one request.

        Raises:
            EngineError: The prompt does not fit the context, or generation failed.
        """

    async def stream(self, request: ChatRequest) -> AsyncIterator[str | ChatResult]:
        """Yield pieces of the response's content as sampled, then the whole result.

        Tool calls are not content: they come with the result alone. A policy that
        does not stream yields the result alone.
        """
        yield await self.chat(request)

    def room(self, request: ChatRequest) -> tuple[int, int]:
        """Return the number of prompt tokens, and of tokens left in the context.

        Raises:
            UnsupportedError: The policy does not count tokens.
        """
        raise UnsupportedError(f"{self.model_name} does not count tokens.")

    async def release(self) -> None:
        """Close the connections of the current event loop, if there are any."""

    def close(self) -> None:
        """Stop answering: pending and later requests fail with EngineError."""


class RegisteredPolicy(ABC):
    """A policy whose trainer registers its servers at the gateway.

    The trainer also reads the rollouts there.

    Attributes:
        model_name: Model name under which the servers are registered.
    """

    model_name: str

    @property
    @abstractmethod
    def failure(self) -> str:
        """Why the trainer cannot go on; empty while it can."""

    @abstractmethod
    def connect(self, gateway: str, key: str, beat: Beat) -> None:
        """Start the trainer, and wait until its servers are registered.

        Args:
            gateway: Base URL of the gateway.
            key: The gateway's key.
            beat: Called while waiting; may raise to give up.

        Raises:
            EngineError: The trainer ended; the message has the end of its log.
        """


@dataclass
class ServedPolicy:
    """A policy behind servers that return token ids and log-probabilities.

    Attributes:
        model_name: Model name that the servers offer.
        servers: Base URLs of OpenAI-compatible servers, ``http://host:8000/v1``.
        version: Number of updates; increased by each update.
        api_key: Bearer key of the servers, empty if they need none.
        failure: Why the servers cannot answer any more, set by their engine; empty
            while they can.
        template_variables: Variables of the chat template on the servers; a request's
            own variables win over them.
    """

    model_name: str
    servers: list[str]
    version: int = 0
    api_key: str = field(default="", repr=False)
    failure: str = ""
    template_variables: Mapping[str, Any] = field(default_factory=dict)
