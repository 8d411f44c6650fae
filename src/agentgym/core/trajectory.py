"""Trajectory: the record of a rollout as a list of steps that JSON can store."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile
from operator import attrgetter, eq
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, field_validator

from agentgym.core.openai import DEFAULT_AGENT
from agentgym.core.records import FrozenRecord, Record
from agentgym.core.tools import ToolOutcome
from agentgym.errors import message_of
from agentgym.security.redaction import redacted

_TOKENS = ("prompt_ids", "response_ids", "logprobs")


class RolloutStatus(StrEnum):
    """How a rollout ended: succeeded, failed or dropped."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DROPPED = "dropped"


class Reason(FrozenRecord):
    """Why a rollout, attempt or model call failed: a category, details for people."""

    kind: str
    detail: str = ""

    @field_validator("kind", "detail")
    @classmethod
    def _redact(cls, text: str) -> str:
        return redacted(text)

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}" if self.detail else self.kind

    @classmethod
    def of_error(cls, error: BaseException, kind: str = "crash") -> Self:
        """Return the reason for an exception; its category begins with ``kind``."""
        return cls(kind=f"{kind}: {type(error).__name__}", detail=message_of(error))


GOAL_NOT_REACHED = Reason.model_construct(kind="goal not reached")
AGENT_CRASHED = "agent crashed"
"""Kind of the reason when an agent's own code crashed after an answer of its model."""
NO_REASON = Reason.model_construct(kind="no reason given")
OWN = "(a tool of the agent's own)"
"""The result of a call that neither the episode nor the agent's own code recorded."""
ENDED = "(the agent ended at this call)"
FORM = "(an answer in this form)"
PLANNED = -1
"""The ``model_version`` of an answer that is a call of the task's solution: the policy
did not sample it."""
MOST_REWARD = 1e9
"""Largest absolute reward, since advantages compute squares of rewards."""


@dataclass(frozen=True)
class Reward:
    """The score of one finished episode.

    Attributes:
        value: The reward, within ``Scenario.reward_range`` and from -1e9 to 1e9.
        success: Whether the goal was reached and no rule was broken.
        parts: Named parts that add up to ``value``, for people to read.
        right_tool: Share of the needed calls (those of the task's solution) whose tool
            was called, 0..1; None if the needed calls are unknown.
        right_arguments: Share of the needed calls that were made with the right
            arguments; None if unknown.
    """

    value: float
    success: bool
    parts: dict[str, float] = field(default_factory=dict)
    right_tool: float | None = None
    right_arguments: float | None = None


class RequestedCall(Record):
    """A tool call as the model wrote it, before a framework processed it."""

    id: str
    name: str
    arguments: str

    def to_openai(self) -> dict[str, Any]:
        """Return the call in the form of OpenAI's assistant messages."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


class Grammar(Record):
    """The grammar that restricted the tokens of a response.

    Tokens that the grammar forbids had probability zero. Training applies the grammar
    to the recorded tokens again, so that its probabilities are comparable with those at
    sampling.

    Attributes:
        text: The grammar, in llguidance's variant of Lark.
        form: Name of a tool that stands for a JSON schema which the answer must follow:
            the policy calls it, and its arguments become the answer's content. Empty
            without a schema.
    """

    version: Literal[1] = 1
    text: str
    form: str = ""


class ModelCall(Record):
    """One request to the policy and its response.

    Attributes:
        agent: Name of the asking agent in a team; ``"agent"`` for a single agent.
        tools: The request's tools as the framework sent them, in OpenAI's format.
        wants_call: Whether the request required a tool call.
        prompt_ids: Exact token ids of the prompt; empty if not recorded. A call without
            token ids is not trained on.
        response_ids: Exact token ids that the policy sampled, the end token included.
        logprobs: Natural log-probability of each token of ``response_ids`` at sampling.
        model_version: Number of updates of the policy's weights before it answered;
            ``PLANNED`` (-1) for a call of the task's solution.
        prompt_tokens: The server's count of prompt tokens, for servers that return no
            token ids; None if unknown.
        rewards: Rewards of this call alone, by name, from :func:`agentgym.reward`.
        grammar: The grammar that restricted the response; None if every token was
            allowed.
    """

    type: Literal["model_call"] = "model_call"
    agent: str = DEFAULT_AGENT
    messages: list[dict[str, Any]] = Field(default_factory=list)
    tools: list[dict[str, Any]] = Field(default_factory=list)
    content: str | None = None
    tool_calls: list[RequestedCall] = Field(default_factory=list)
    wants_call: bool = False
    prompt_ids: list[int] = Field(default_factory=list)
    response_ids: list[int] = Field(default_factory=list)
    logprobs: list[float] = Field(default_factory=list)
    model_version: int = 0
    finish_reason: str = "stop"
    latency_ms: float = 0.0
    prompt_tokens: int | None = None
    response_tokens: int | None = None
    rewards: dict[str, float] = Field(default_factory=dict)
    grammar: Grammar | None = None

    @classmethod
    def without_tokens(cls, **fields: Any) -> Self:
        """Build a model call without token ids and log-probabilities, unvalidated.

        Reward functions get such model calls, since token ids stay in the trainer's
        process. Reading a missing field raises an AttributeError.
        """
        empty: dict[str, Any] = dict.fromkeys(_TOKENS)  # pydantic's defaults are slow
        call = cls.model_construct(**empty, **fields)
        for name in _TOKENS:
            del call.__dict__[name]
        return call

    if not TYPE_CHECKING:  # a type checker would then accept any attribute

        def __getattr__(self, name: str) -> Any:
            """Raise an AttributeError that explains why a call has no token ids."""
            if name in _TOKENS:
                raise AttributeError(
                    f"A reward sees model calls without {name}: token ids and "
                    "log-probabilities stay with the trainer. Use token_counts, "
                    "content, messages or tool_calls."
                )
            return super().__getattr__(name)

    @property
    def is_planned(self) -> bool:
        """Whether this is a call of the task's solution, which nothing sampled."""
        return self.model_version == PLANNED

    @property
    def token_counts(self) -> tuple[int, int] | None:
        """Numbers of prompt tokens and response tokens; None if both are unknown."""
        prompt, response = map(self.__dict__.get, _TOKENS[:2])
        if prompt or response:
            return len(prompt or ()), len(response or ())
        if self.prompt_tokens is None and self.response_tokens is None:
            return None
        return self.prompt_tokens or 0, self.response_tokens or 0


class ToolCall(Record):
    """One tool call and its outcome.

    Attributes:
        id: Id of the :class:`RequestedCall`; None if the framework does not pass it.
        result: The text that the agent saw.
        fault: The kind of fault that was injected into the call; see docs/faults.md.
    """

    type: Literal["tool_call"] = "tool_call"
    id: str | None = None
    name: str
    arguments: dict[str, Any] | None = None
    outcome: ToolOutcome = ToolOutcome.OK
    result: str = ""
    duration_ms: float = 0.0
    fault: str = ""

    @property
    def failed(self) -> bool:
        """Whether the call failed, and not because of an injected fault."""
        return self.outcome is not ToolOutcome.OK and not self.fault

    @property
    def was_answered(self) -> bool:
        """Whether a tool answered the call; not a hand-off, nor an answer in a form."""
        answered = (ToolOutcome.OK, ToolOutcome.RAISED, ToolOutcome.RULE_BROKEN)
        return self.outcome in answered and self.result not in (OWN, ENDED, FORM)

    def repeats(self, other: "ToolCall") -> bool:
        """Return whether ``other`` has the same name, arguments, outcome and result."""
        asked_and_got = attrgetter("name", "arguments", "outcome", "result")
        return bool(asked_and_got(self) == asked_and_got(other))


Step = Annotated[ModelCall | ToolCall, Field(discriminator="type")]


class Numbers(FrozenRecord):
    """Counts of one trajectory that can be added up over many trajectories."""

    steps: int
    tool_calls: int
    tool_errors: int
    prompt_tokens: int
    response_tokens: int
    uncounted_calls: int

    @property
    def tokens(self) -> int:
        """Number of prompt and response tokens together."""
        return self.prompt_tokens + self.response_tokens


class TrajectoryStats(Numbers):
    """The figures of one trajectory.

    Attributes:
        prompt_tokens: Prompt tokens of all model calls with known token counts.
        response_tokens: Response tokens of these calls.
    """

    reward: float | None
    duration_s: float


class Trajectory(Record):
    """The record of one rollout.

    Attributes:
        version: Version of this format; other versions are errors.
        attempt: Number of earlier attempts at this rollout that were abandoned.
        group: Id that rollouts of the same task in the same step share.
        reward: The reward; None until scored, and for a dropped rollout.
        reward_parts: Named parts that add up to the reward, for people to read.
        success: Whether the goal was reached and no rule was broken; None until scored.
        right_tool: Share of the needed calls whose tool was called; None if unknown.
        right_arguments: Share of the needed calls that were made with the right
            arguments; None if unknown.
        reason: Why the rollout failed, was dropped or ended early. None if the agent
            ended by itself and succeeded.
        changed_files: New content of each changed text file in the agent's workspace,
            by path; None for a deleted file.
        end_state: The state of the agent and of the environment at the end, as JSON
            values; empty if neither reports its state.
        unused_calls: Number of model requests that are not in ``steps``, by role and
            kind of reason: the model did not answer, or the attempt was abandoned.
    """

    version: Literal[1] = 1
    rollout_id: str
    attempt: int = 0
    scenario: str
    task_id: str
    family: str = ""
    level: int = 1
    group: str = ""
    steps: list[Step] = Field(default_factory=list)
    reward: float | None = None
    reward_parts: dict[str, float] = Field(default_factory=dict)
    success: bool | None = None
    right_tool: float | None = None
    right_arguments: float | None = None
    status: RolloutStatus = RolloutStatus.SUCCEEDED
    reason: Reason | None = None
    duration_s: float = 0.0
    answer: str | None = None
    changed_files: dict[str, str | None] = Field(default_factory=dict)
    end_state: dict[str, Any] = Field(default_factory=dict)
    unused_calls: dict[str, dict[str, int]] = Field(default_factory=dict)

    def scored(self, reward: Reward) -> Self:
        """Return a copy with the score ``reward``, and the status that it implies.

        The status is succeeded or failed.
        """
        reached = reward.success
        return self.model_copy(
            update={
                "reward": reward.value,
                "reward_parts": dict(reward.parts),
                "success": reached,
                "right_tool": reward.right_tool,
                "right_arguments": reward.right_arguments,
                "status": RolloutStatus.SUCCEEDED if reached else RolloutStatus.FAILED,
                "reason": self.reason or (None if reached else GOAL_NOT_REACHED),
            }
        )

    def with_inner_rewards(self) -> Self:
        """Return a copy whose reward includes the rewards of single model calls."""
        inner = Counter[str]()
        for call in self.model_calls:
            inner.update(call.rewards)
        return self.with_parts(inner)

    def with_parts(self, added: Mapping[str, float]) -> Self:
        """Return a copy whose reward has grown by some named parts.

        If the reward has no parts, it first becomes the part ``scenario``. A trajectory
        without a reward is returned unchanged.
        """
        if self.reward is None or not added:
            return self
        parts = Counter(self.reward_parts or {"scenario": self.reward})
        parts.update(added)
        grown = {"reward": self.reward + sum(added.values()), "reward_parts": {**parts}}
        return self.model_copy(update=grown)

    @property
    def score(self) -> Reward:
        """The trajectory's score as a Reward.

        Raises:
            ValueError: The trajectory was not scored.
        """
        if self.reward is None or self.success is None:
            raise ValueError(f"Rollout {self.rollout_id!r} has no score.")
        shares = self.right_tool, self.right_arguments
        return Reward(self.reward, self.success, self.reward_parts, *shares)

    @property
    def model_calls(self) -> list[ModelCall]:
        """The model calls, in order."""
        return [step for step in self.steps if isinstance(step, ModelCall)]

    def new_messages(self) -> Iterator[tuple[Step, list[dict[str, Any]]]]:
        """Yield each step; a model call with the messages that its agent adds to it.

        These are the messages that the agent's previous model call did not have.
        """
        before: dict[str, list[dict[str, Any]]] = {}
        for step in self.steps:
            if isinstance(step, ToolCall):
                yield step, []
                continue
            known = before.get(step.agent, [])
            shared = sum(takewhile(bool, map(eq, step.messages, known)))
            before[step.agent] = step.messages
            yield step, step.messages[shared:]

    def get_tool_calls(self, name: str | None = None) -> list[ToolCall]:
        """Return the tool calls in order; with ``name``, only calls of this tool."""
        calls = [step for step in self.steps if isinstance(step, ToolCall)]
        return calls if name is None else [c for c in calls if c.name == name]

    def calls_by_maker(self) -> tuple[list[ToolCall], list[ToolCall]]:
        """Return the model's tool calls, and the tool calls of the agent's own code.

        The model made a call if one of its responses requested a call with this id. All
        calls count as the model's in two cases: if the model requested calls but no id
        fits (some frameworks do not pass ids), or if no request offered tools.
        """
        asked = {call.id for made in self.model_calls for call in made.tool_calls}
        calls = self.get_tool_calls()
        by_model = [call for call in calls if call.id in asked]
        is_known = bool(by_model) or not asked
        if not is_known or not any(made.tools for made in self.model_calls):
            return calls, []
        return by_model, [call for call in calls if call.id not in asked]

    def form_answers(self) -> set[str | None]:
        """Return the ids of calls that are answers in a form, not tool calls.

        They are calls of a tool that stands for the form of the answer, and calls of an
        agent's own tool that was the only one which the model was allowed to call.
        """
        own = {call.id for call in self.get_tool_calls() if call.result == OWN}
        found: set[str | None] = set()
        for made in self.model_calls:
            form = made.grammar.form if made.grammar is not None else ""
            forced = made.wants_call and len(made.tools) == 1
            found |= {
                call.id
                for call in made.tool_calls
                if call.name == form or (forced and call.id in own)
            }
        return found

    def get_total_reward(self) -> float | None:
        """Return the trajectory's reward; None if the trajectory was not scored."""
        return self.reward

    def stats(self) -> TrajectoryStats:
        """Count this trajectory's calls, errors and tokens."""
        calls, tools = self.model_calls, self.get_tool_calls()
        counts = [call.token_counts for call in calls]
        counted = [count for count in counts if count is not None]
        return TrajectoryStats(
            steps=len(calls),
            tool_calls=len(tools),
            tool_errors=sum(tool.failed for tool in tools),
            prompt_tokens=sum(prompt for prompt, _ in counted),
            response_tokens=sum(response for _, response in counted),
            uncounted_calls=len(calls) - len(counted),
            reward=self.reward,
            duration_s=self.duration_s,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the trajectory as JSON values; :meth:`from_dict` is its inverse."""
        return self.model_dump(mode="json")

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Build a trajectory from the output of :meth:`to_dict`.

        Raises:
            pydantic.ValidationError: A field is unknown or of a wrong type, or the
                version is not the one that this package supports.
        """
        return cls.model_validate(data)
