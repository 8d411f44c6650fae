"""AgentSource: the settings that name a user's agent. AgentSpec: a saved agent."""

import json
import re
from pathlib import Path, PurePath
from typing import (
    Annotated,
    Any,
    Literal,
    Protocol,
    runtime_checkable,
)

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from agentgym.core.policy import Policy

COMMAND = "command:"
"""Prefix of the setting ``agent`` for a program, as in ``command:node agent.js``."""


def is_command(reference: str) -> bool:
    """Return whether a value of the setting ``agent`` is a program (``command:…``)."""
    return reference.startswith(COMMAND)


def program_name(reference: str) -> str:
    """Return a name for a program: the name of the first file in its command."""
    words = reference.removeprefix(COMMAND).split()
    named = [word for word in words if PurePath(word).suffix] or words[:1]
    stem = PurePath(named[0]).stem if named else ""
    return re.sub(r"[^a-zA-Z0-9]+", "_", stem).strip("_").lower()


class AgentSpec(BaseModel):
    """The definition of a saved agent, without its weights.

    Attributes:
        agent: ``module:name`` of the user's agent or of a function that creates it, or
            ``command:`` and a program's command. None means the agent that the scenario
            itself defines.
        max_turns: Maximum number of model calls in one episode, for each agent of a
            team.
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
        """Model name under which a server offers this agent: the scenario's name."""
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
    """The parts of a trained agent that a framework adapter needs to export it.

    Attributes:
        spec: The agent's prompt, tools and limits.
    """

    spec: AgentSpec

    @property
    def name(self) -> str:
        """The agent's name and version, e.g. ``desk@1``."""

    @property
    def folder(self) -> str:
        """The working folder of the training process; empty if unknown."""

    @property
    def model_path(self) -> Path:
        """The folder with the weights and the tokenizer."""

    @property
    def roles(self) -> tuple[str, ...]:
        """The team members that have their own LoRA adapter; empty if none has one."""

    @property
    def scenario(self) -> str:
        """The scenario to load: its name, or the path of its folder or file."""

    def verified_model(self) -> Path:
        """Verify the checksums of the weights and return their folder."""

    def load_policy(self) -> Policy:
        """Load the weights into this process; closing the policy frees them."""

    def transport(self) -> Any:
        """Load the weights; return an HTTP transport that answers OpenAI requests.

        It is one for ``httpx.AsyncClient`` and ``httpx.Client``. Closing the transport
        frees the weights.
        """


def _read_keys(value: Any) -> Any:
    """Read a mapping from a JSON text, or from one or more ``key=value`` texts."""
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
    """Return a list of names from a JSON list or from a comma-separated text."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return json.loads(value)
    return [name.strip() for name in value.split(",") if name.strip()]


class AgentSource(BaseModel):
    """The settings that describe the user's agent.

    In the settings, ``agent: my_module:agent`` is short for ``agent: {reference:
    my_module:agent}``.

    Attributes:
        reference: ``module:name`` of the agent or of a function that creates it, or a
            program such as ``command:node agent.js``. None means the agent that the
            scenario defines; if it defines none, the framework's default agent.
        context: ``module:name`` of a function that gets the task and returns the
            runtime context of a LangGraph graph.
        inputs: ``module:name`` of a function that gets the task and returns either
            further keys of a LangGraph graph's initial state, or the graph's whole
            input.
        configurable: Keys of a LangGraph agent's ``config["configurable"]`` in every
            episode, e.g. ``{"user_id": "7"}``. A task's value for the same key wins.
        on_interrupt: ``module:name`` of a function that gets the value of a LangGraph
            ``interrupt()`` and returns the answer with which the graph resumes.
        own_tools: How to answer calls of tools that the agent has and the scenario does
            not have. ``stub`` answers with made-up values of the right types. If None,
            an agent with such tools is refused unless ``allow_tools`` names them.
        allow_tools: Names of the agent's own tools that really run.
        allow_host: Other machines that the agent's own code may reach in the trial
            before training, e.g. a database. Training does not block any.
        program_memory_mb: Memory limit in MB of one episode's program, together with
            its child processes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    reference: str | None = None
    context: str | None = None
    inputs: str | None = None
    on_interrupt: str | None = None
    configurable: Annotated[dict[str, Any], BeforeValidator(_read_keys)] = Field(
        default_factory=dict
    )
    own_tools: Literal["stub"] | None = None
    allow_tools: Annotated[tuple[str, ...], BeforeValidator(_read_names)] = ()
    allow_host: Annotated[tuple[str, ...], BeforeValidator(_read_names)] = ()
    program_memory_mb: int = Field(default=4096, ge=16, le=2**24)
