"""Trajectories: what a rollout recorded, as typed steps that round-trip as JSON."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from agentgym.core.tools import ToolOutcome

if TYPE_CHECKING:
    from agentgym.core.statistics import TrajectoryStats

TRAJECTORY_VERSION = 3


class RolloutStatus(StrEnum):
    """How a rollout ended: the agent finished, it failed, or it is left out."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DROPPED = "dropped"


class RequestedCall(BaseModel):
    """A tool call as the model wrote it, before any framework touched it."""

    model_config = ConfigDict(extra="forbid")

    id: str
    name: str
    arguments: str


class ModelCall(BaseModel):
    """One call of the policy.

    Attributes:
        agent: Which agent of a team spoke; ``"agent"`` for a single one.
        messages: The request's messages, OpenAI-shaped.
        tools: The request's tools as the framework sent them, OpenAI-shaped.
        content: The text of the response, None if it was only tool calls.
        tool_calls: The tool calls of the response.
        prompt_ids: Exact token ids the policy saw; empty if not recorded. Nothing
            is trained on a call without them.
        response_ids: Exact token ids the policy sampled, the end token included.
        logprobs: Natural-log probability of each response token when sampled, same
            length as ``response_ids``.
        model_version: Updates the policy had had when it answered.
        finish_reason: ``stop``, ``tool_calls`` or ``length``.
        prompt_tokens: How many tokens the server counted in the prompt, where it
            counts and gives no ids; None if unknown.
        response_tokens: The same of the response.
    """

    model_config = ConfigDict(extra="forbid")

    type: Literal["model_call"] = "model_call"
    agent: str = "agent"
    messages: list[dict[str, Any]] = Field(default_factory=list)
    tools: list[dict[str, Any]] = Field(default_factory=list)
    content: str | None = None
    tool_calls: list[RequestedCall] = Field(default_factory=list)
    prompt_ids: list[int] = Field(default_factory=list)
    response_ids: list[int] = Field(default_factory=list)
    logprobs: list[float] = Field(default_factory=list)
    model_version: int = 0
    finish_reason: str = "stop"
    latency_ms: float = 0.0
    prompt_tokens: int | None = None
    response_tokens: int | None = None


class ToolCall(BaseModel):
    """One tool call and its outcome.

    Attributes:
        id: Joins it to a :class:`RequestedCall`; None where the framework hides it.
        arguments: Parsed arguments, None if malformed.
        outcome: ``OK``, or what was wrong.
        result: The text the agent saw.
    """

    model_config = ConfigDict(extra="forbid")

    type: Literal["tool_call"] = "tool_call"
    id: str | None = None
    name: str
    arguments: dict[str, Any] | None = None
    outcome: ToolOutcome = ToolOutcome.OK
    result: str = ""
    duration_ms: float = 0.0

    def repeats(self, other: "ToolCall") -> bool:
        """Say whether it asked for just what ``other`` did, and ended just so."""
        return (self.name, self.arguments, self.outcome, self.result) == (
            other.name,
            other.arguments,
            other.outcome,
            other.result,
        )


Step = Annotated[ModelCall | ToolCall, Field(discriminator="type")]


class Trajectory(BaseModel):
    """What one rollout recorded, in order.

    Attributes:
        version: Of this format; a newer one is refused. Later ones added what is
            optional: 2 token counts, ``answer`` and ``changed_files``, 3
            ``unused_calls``.
        rollout_id: The rollout; ``attempt`` counts its retries from 0.
        group: Rollouts of one group attempted the same task at the same step.
        steps: Model calls and tool calls in the order they happened.
        reward: None until scored, and for a dropped rollout: never invented.
        reward_parts: Named parts that add up to the reward, for people to read.
        success: Whether the task's goal was reached and no rule broken.
        right_tool: Share of the calls the task needs whose tool was called.
        right_arguments: Share of those that were made with the right arguments.
        status: How it ended, and ``reason`` why.
        duration_s: Wall seconds.
        answer: What the agent said at its end, None if unknown or nothing.
        changed_files: Text files of the agent's workspace that differ from the
            task's at the end, None for one that is gone; empty without a workspace.
        unused_calls: Requests to the model that led to no step, by reason: it did
            not answer, or the attempt that they belonged to was given up.
    """

    model_config = ConfigDict(extra="forbid")

    version: int = Field(default=TRAJECTORY_VERSION, ge=1, le=TRAJECTORY_VERSION)
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
    reason: str = ""
    duration_s: float = 0.0
    answer: str | None = None
    changed_files: dict[str, str | None] = Field(default_factory=dict)
    unused_calls: dict[str, int] = Field(default_factory=dict)

    @property
    def model_calls(self) -> list[ModelCall]:
        """The calls of the policy, in order."""
        return [step for step in self.steps if isinstance(step, ModelCall)]

    def get_tool_calls(self, name: str | None = None) -> list[ToolCall]:
        """Return the tool calls in order, only those of tool ``name`` if given."""
        calls = [step for step in self.steps if isinstance(step, ToolCall)]
        return calls if name is None else [c for c in calls if c.name == name]

    def get_total_reward(self) -> float | None:
        """Return the trajectory's reward; None if it was never scored."""
        return self.reward

    def stats(self) -> "TrajectoryStats":
        """Return the numbers of this trajectory: steps, errors, tokens, time."""
        from agentgym.core.statistics import TrajectoryStats

        return TrajectoryStats.of(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the trajectory as JSON values; :meth:`from_dict` is its inverse."""
        return self.model_dump(mode="json")

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Build a trajectory from :meth:`to_dict`'s output.

        Raises:
            pydantic.ValidationError: A field is unknown or ill-typed, or the
                version is newer than this package reads.
        """
        return cls.model_validate(data)
