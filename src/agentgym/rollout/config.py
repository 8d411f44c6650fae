"""RolloutConfig: how rollouts on their own are run."""

from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from agentgym.core.config import explain_invalid, read_settings
from agentgym.errors import ConfigError


class RolloutConfig(BaseModel):
    """Settings of a batch of rollouts. Unknown keys are refused.

    Attributes:
        agent: ``react``, ``tool``, ``coding``, or ``module:Class`` of one's own.
        system_prompt: Instead of the agent's or the scenario's.
        max_steps: Model calls after which a rollout has failed.
        max_tokens_per_step: Most tokens of one response; None leaves it to the
            server.
        temperature: Of sampling; None leaves it to the server.
        concurrency: Rollouts in flight.
        timeout_s: Wall seconds after which a rollout is dropped.
        save: JSON Lines file that each trajectory is appended to as it ends.
        tools: Tools by name, each with its settings, e.g.
            ``{"bash": {"timeout_s": 5}}``; a list of names takes the defaults. None
            gives the agent its own.
        unsafe_local_exec: Run commands of the bash tool, and a scenario's code,
            without a sandbox.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    agent: str = "tool"
    system_prompt: str | None = None
    max_steps: int = Field(default=10, ge=1)
    max_tokens_per_step: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0)
    concurrency: int = Field(default=32, ge=1)
    timeout_s: float = Field(default=120.0, gt=0)
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

    @classmethod
    def create(cls, **values: Any) -> Self:
        """Validate ``values``; those that are None take their defaults.

        Raises:
            ConfigError: Says which key, which value, and what was expected.
        """
        given = {key: value for key, value in values.items() if value is not None}
        try:
            return cls(**given)
        except ValidationError as error:
            known = sorted(cls.model_fields)
            raise ConfigError(explain_invalid(error, known)) from None

    @classmethod
    def from_yaml(cls, path: Path, **overrides: Any) -> Self:
        """Read a YAML mapping; ``overrides`` that are not None win over it.

        Raises:
            ConfigError: The file cannot be read, is no mapping, or does not
                validate.
        """
        return cls.create(**read_settings(path, overrides))

    def replaced(self, **changes: Any) -> Self:
        """Return a copy with ``changes`` that are not None, validated again.

        Raises:
            ConfigError: Says which key, which value, and what was expected.
        """
        given = {key: value for key, value in changes.items() if value is not None}
        return self.create(**{**self.model_dump(), **given})
