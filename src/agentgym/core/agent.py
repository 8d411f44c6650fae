"""AgentSource, a user's agent as a run is given it; AgentSpec, a saved agent."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Protocol,
    runtime_checkable,
)

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from agentgym.core.policy import Policy

if TYPE_CHECKING:
    import httpx


COMMAND = "command:"
"""Begins the reference of an agent that is a program: ``command:node agent.js``."""


def is_command(reference: str) -> bool:
    """Say whether an agent's reference is the command of a program."""
    return reference.startswith(COMMAND)


class AgentSpec(BaseModel):
    """The definition of an agent, apart from its weights.

    Attributes:
        scenario: The scenario that it was trained on, which has its tools by default.
        framework: The framework that it was trained in.
        agent: ``module:name`` of the user's own factory, or ``command:`` and the
            command of a program; None for the scenario's.
        system_prompt: Its role and rules.
        tools: OpenAI-shaped tools, with their original schemas; empty where each task
            of the scenario has tools of its own.
        max_turns: Model calls after which it is cut.
        max_tokens: Of one response.
        temperature: To sample with; the one it was evaluated at.
    """

    model_config = ConfigDict(extra="forbid")

    scenario: str
    framework: str
    agent: str | None = None
    system_prompt: str
    tools: list[dict[str, Any]]
    max_turns: int
    max_tokens: int
    temperature: float

    @property
    def served_name(self) -> str:
        """The model's name at a server of its own: that of the scenario."""
        return Path(self.scenario).name

    @field_validator("tools")
    @classmethod
    def _have_names(cls, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for number, tool in enumerate(tools):
            function = tool.get("function")
            if not isinstance(function, dict) or not isinstance(
                function.get("name"), str
            ):
                raise ValueError(f"tool {number} has no function with a name")
        return tools


@runtime_checkable
class Trained(Protocol):
    """A trained agent as adapters see it, to export it as one of their framework.

    Attributes:
        spec: Prompt, tools and limits.
    """

    spec: AgentSpec

    @property
    def name(self) -> str:
        """Its name and version: ``desk@1``."""

    @property
    def folder(self) -> str:
        """The folder that it was trained in; empty if that is not known."""

    @property
    def model_path(self) -> Path:
        """The weights and tokenizer."""

    @property
    def scenario(self) -> str:
        """What to load the scenario by: its name, or the path of its pack."""

    def verified_model(self) -> Path:
        """Return the folder of weights, once they are found to be those saved."""

    def load_policy(self) -> Policy:
        """Load the weights into this process; they are let go with the policy."""

    def transport(self) -> "httpx.AsyncBaseTransport":
        """Load the weights behind a client of OpenAI's; they go with the client."""


def _read_keys(value: Any) -> Any:
    """Return a mapping, from one or from texts ``key=value`` with JSON or text."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            value = [value]
    if not isinstance(value, list | tuple):
        return value
    found: dict[str, Any] = {}
    for text in value:
        key, equals, said = str(text).partition("=")
        if not key.strip() or not equals:
            raise ValueError(f"{text!r} is not of the form key=value")
        try:
            found[key.strip()] = json.loads(said)
        except ValueError:
            found[key.strip()] = said
    return found


def _read_names(value: Any) -> Any:
    """Return names from a JSON list, or from a text with commas between them."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return json.loads(value)
    return [name.strip() for name in value.split(",") if name.strip()]


class AgentSource(BaseModel):
    """A user's agent as a run is given it: one value from the settings to a worker.

    A setting ``agent`` that is a text is its ``reference``.

    Attributes:
        reference: ``module:name`` of the agent, or of its factory; ``command:`` and the
            command of a program, ``command:node agent.js``; None takes the scenario's
            own agent, or the framework's default one.
        context: ``module:name`` of a function of the task that gives the runtime
            context that a graph wants.
        inputs: ``module:name`` of a function of the task that gives further keys of a
            graph's state, or its whole input.
        configurable: Keys of a LangGraph agent's ``config["configurable"]`` in every
            episode, ``{"user_id": "7"}``; a task's own win over them.
        own_tools: The answer to calls of an agent's own tools that the scenario does
            not have: ``stub`` answers them with values of the right types. None refuses
            an agent that has some, apart from those in ``allow_tools``.
        allow_tools: The agent's own tools that really run.
        program_memory_mb: Most megabytes that an episode's program and its children
            hold.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    reference: str | None = None
    context: str | None = None
    inputs: str | None = None
    configurable: Annotated[dict[str, Any], BeforeValidator(_read_keys)] = Field(
        default_factory=dict
    )
    own_tools: Literal["stub"] | None = None
    allow_tools: Annotated[tuple[str, ...], BeforeValidator(_read_names)] = ()
    program_memory_mb: int = Field(default=4096, ge=16, le=2**24)


_AGENT, _REFERENCE = "agent", "reference"
FLAT_KEYS = tuple(key for key in AgentSource.model_fields if key != _REFERENCE)
"""Parts of an agent's source that options, variables and old files set by name."""


def flattened(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the parts of ``agent`` as settings of their own.

    A part that is also given by its own name keeps that value. An ``agent`` with an
    unknown part stays as it is, for validation to refuse.
    """
    found = dict(values)
    agent = found.get(_AGENT)
    parts = agent.model_dump() if isinstance(agent, AgentSource) else agent
    if not isinstance(parts, Mapping) or parts.keys() - AgentSource.model_fields.keys():
        return found
    del found[_AGENT]
    named = {_AGENT if key == _REFERENCE else key: parts[key] for key in parts}
    return named | found


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the parts of an agent's source below ``agent``.

    The inverse of :func:`flattened`.
    """
    found = flattened(values)
    parts = {key: found.pop(key) for key in FLAT_KEYS if key in found}
    if isinstance(found.get(_AGENT), Mapping):  # it has an unknown part
        return found | {_AGENT: {**found[_AGENT], **parts}}
    if _AGENT in found:
        parts[_REFERENCE] = found.pop(_AGENT)
    return found | ({_AGENT: parts} if parts else {})


def agent_reference(settings: Mapping[str, Any]) -> str | None:
    """Return the reference of the agent in recorded settings, of any version."""
    reference = flattened(settings).get(_AGENT)
    return None if reference is None else str(reference)
