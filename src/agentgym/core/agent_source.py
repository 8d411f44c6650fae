"""AgentSource: where a user's agent comes from, its input and its own tools."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


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
        reference: ``module:name`` of the agent, or of its factory; None takes the
            scenario's own agent, or the framework's default one.
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
