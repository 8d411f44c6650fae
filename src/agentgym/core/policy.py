"""Policy: a model that answers chat completions and returns its exact tokens."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentgym.core.files import Beat
from agentgym.core.trajectory import Grammar, RequestedCall
from agentgym.errors import UnsupportedError


@dataclass(frozen=True)
class ChatRequest:
    """One chat completion request to the policy.

    Attributes:
        agent: Name of the asking agent in a team; a policy with several LoRA adapters
            uses the adapter of this agent.
        session: Id that all requests of one agent in one rollout attempt share. The
            prompt reuses the exact token ids of earlier turns in the same session, if
            the rendered text begins with them.
        form: Name of a tool that stands for a JSON schema which the answer must follow.
            The policy calls this tool, and the call's arguments become the answer's
            content. Empty without a schema.
        is_strict: Whether the answer must follow every part of the JSON schema. If
            false, parts that a grammar cannot express are ignored.
        stop: Texts at which sampling ends. The response's tokens include the text; the
            sender of the answer cuts the content before it.
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
    stop: Sequence[str] = ()


@dataclass(frozen=True)
class ChatResult:
    """The policy's answer to a request, with its exact tokens.

    Attributes:
        response_ids: Token ids that the policy sampled, the end token included.
        logprobs: Natural log-probability of each response token under the sampling
            distribution.
        content: Text for the user, without tool calls and reasoning; None if empty.
        tool_calls: The answer's tool calls. A call that cannot be parsed becomes a call
            of ``malformed_call``, a tool that no agent has.
        model_version: Number of updates of the policy's weights before it answered.
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
        gives_forms: Whether an answer that must follow a JSON schema is requested from
            the policy as a tool call (see ``ChatRequest.form``).
    """

    gives_forms = True

    @property
    def failure(self) -> str:
        """Why the policy cannot answer any more; empty while it can."""
        return ""

    @property
    @abstractmethod
    def model_name(self) -> str:
        """The model name with which agents request the policy from the gateway."""

    @abstractmethod
    async def chat(self, request: ChatRequest) -> ChatResult:
        """Sample an answer to one request.

        Raises:
            EngineError: The prompt does not fit the context, or generation failed.
        """

    async def stream(self, request: ChatRequest) -> AsyncIterator[str | ChatResult]:
        """Yield parts of the answer's content while it is sampled, then the result.

        Tool calls are only in the result. A policy that does not stream yields nothing
        but the result.
        """
        yield await self.chat(request)

    def room(self, request: ChatRequest) -> tuple[int, int]:
        """Return the number of prompt tokens, and how many more fit into the context.

        Raises:
            UnsupportedError: The policy does not count tokens.
        """
        raise UnsupportedError(f"{self.model_name} does not count tokens.")

    async def release(self) -> None:
        """Close the connections to servers that the current event loop opened."""

    def close(self) -> None:
        """Stop answering: pending and later requests fail with EngineError."""


class RegisteredPolicy(ABC):
    """A policy whose servers an external trainer registers at the gateway.

    The gateway is the HTTP server to which agents send their model requests. The
    trainer also reads the rollouts from the gateway. Its servers are registered under
    ``model_name``.
    """

    model_name: str

    @property
    @abstractmethod
    def failure(self) -> str:
        """Why the trainer cannot continue; empty while it can."""

    @abstractmethod
    def connect(self, gateway: str, key: str, beat: Beat) -> None:
        """Start the trainer, and wait until its servers are registered.

        ``gateway`` is the gateway's base URL, ``key`` its key. ``beat`` is called
        regularly while waiting; it may raise to stop waiting.

        Raises:
            EngineError: The trainer ended; the message quotes the end of its log.
        """


@dataclass
class ServedPolicy:
    """A policy behind servers that return token ids and log-probabilities.

    Attributes:
        servers: Base URLs of OpenAI-compatible servers, ``http://host:8000/v1``.
        failure: Why the servers cannot answer any more, set by the engine that runs
            them; empty while they can.
        template_variables: Variables for the servers' chat template. A variable of the
            same name in a request wins.
    """

    model_name: str
    servers: list[str]
    version: int = 0
    api_key: str = field(default="", repr=False)
    failure: str = ""
    template_variables: Mapping[str, Any] = field(default_factory=dict)
