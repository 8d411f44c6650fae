"""AgentSource, the settings that name a user's agent; AgentSpec, a saved agent."""

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
"""Start of the reference of an agent that is a program: ``command:node agent.js``."""


def is_command(reference: str) -> bool:
    """Say whether an agent's reference is the command of a program."""
    return reference.startswith(COMMAND)


class AgentSpec(BaseModel):
    """The definition of an agent, apart from its weights.

    Attributes:
        scenario: The scenario that it was trained on; its tools are the default.
        framework: The framework that it was trained in.
        agent: ``module:name`` of the user's own factory, or ``command:`` and the
            command of a program; None for the scenario's.
        system_prompt: Its role and rules.
        tools: OpenAI-shaped tools, with their original schemas; empty where each task
            of the scenario has tools of its own.
        max_turns: Most model calls in one episode.
        max_tokens: Most tokens of one response.
        temperature: Sampling temperature; the one that the agent was evaluated at.
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
        """Model name that a server of this agent offers: the scenario's name."""
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
    """A trained agent as adapters see it when they export it to their framework.

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
    def roles(self) -> tuple[str, ...]:
        """The agents of its team with adapters of their own."""

    @property
    def scenario(self) -> str:
        """Reference that loads the scenario: its name, or the path of its pack."""

    def verified_model(self) -> Path:
        """Verify the checksums of the weights and return their folder."""

    def load_policy(self) -> Policy:
        """Load the weights into this process; closing the policy frees them."""

    def transport(self) -> "httpx.AsyncBaseTransport":
        """Load the weights behind an OpenAI-style client; closing it frees them."""


def _read_keys(value: Any) -> Any:
    """Return a mapping, given as one or as ``key=value`` texts (JSON or plain text)."""
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
    """Return names from a JSON list or from a comma-separated text."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return json.loads(value)
    return [name.strip() for name in value.split(",") if name.strip()]


class AgentSource(BaseModel):
    """The user's agent: one value that is passed from the settings to the workers.

    A setting ``agent`` that is a text is its ``reference``.

    Attributes:
        reference: ``module:name`` of the agent, or of its factory; ``command:`` and the
            command of a program, ``command:node agent.js``; None takes the scenario's
            own agent, or the framework's default one.
        context: ``module:name`` of a function that gets the task and returns the
            runtime context of a graph.
        inputs: ``module:name`` of a function that gets the task and returns further
            keys of a graph's state, or its whole input.
        configurable: Keys of a LangGraph agent's ``config["configurable"]`` in every
            episode, ``{"user_id": "7"}``; keys of the task win over them.
        own_tools: How to answer calls of the agent's own tools that the scenario does
            not have: ``stub`` returns values of the right types. None refuses an agent
            with such tools, except those in ``allow_tools``.
        allow_tools: The agent's own tools that are really executed.
        program_memory_mb: Memory limit in MB of an episode's program and its children.
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
"""Fields of AgentSource that options, variables and older files set by name."""


def flattened(values: Mapping[str, Any]) -> dict[str, Any]:
    """Move the fields of ``agent`` to the top level of the settings.

    A field that is also given at the top level keeps that value. An ``agent`` with an
    unknown field is left as it is, so that validation refuses it.
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
    """Move the fields of AgentSource at the top level below ``agent``.

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
