"""RolloutConfig: settings of rollouts without training."""

from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, field_validator

from agentgym.core.settings import LONGEST_S, Settings


class RolloutConfig(Settings):
    """Settings of a batch of rollouts. Unknown keys are refused.

    Attributes:
        agent: ``react``, ``tool``, ``coding``, ``module:Class`` of your own agent, or
            ``command:`` followed by a program's command line.
        system_prompt: Replaces the system prompt of the agent or the scenario.
        max_steps: Maximum number of model calls in a rollout. A rollout that has no
            answer by then fails.
        max_tokens_per_step: Maximum number of tokens in one response; None uses the
            server's limit.
        temperature: Sampling temperature; None uses the server's default.
        cache_requests: File that keeps a server's answers, so that equal requests are
            not sent again. Only for models on servers, at ``temperature`` 0.
        concurrency: Number of rollouts that run at the same time.
        timeout_s: Wall-clock seconds after which a rollout is dropped. The default
            suffices for a model of 0.5 billion parameters that answers 32 rollouts at
            once on a busy processor.
        save: JSON Lines file; each trajectory is appended when its rollout ends.
        tools: Tools by name, each with its settings, e.g. ``{"bash": {"timeout_s":
            5}}``; or a list of names, for default settings. None uses the agent's own
            tools.
        unsafe_local_exec: Run commands of the bash tool, and a scenario's code, without
            a sandbox.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    agent: str = "tool"
    system_prompt: str | None = None
    max_steps: int = Field(default=10, ge=1, le=10**6)
    max_tokens_per_step: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0)
    cache_requests: Path | None = None
    concurrency: int = Field(default=32, ge=1, le=10**5)
    timeout_s: float = Field(default=600.0, gt=0, le=LONGEST_S)
    save: Path | None = None
    tools: dict[str, dict[str, Any]] | None = None
    unsafe_local_exec: bool = False

    @field_validator("tools", mode="before")
    @classmethod
    def _names_take_defaults(cls, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return {name: {} for name in value}
        if isinstance(value, dict):
            return {k: {} if v is None else v for k, v in value.items()}
        return value
