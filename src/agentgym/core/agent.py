"""AgentSource: the settings that name a user's agent. AgentSpec: a saved agent."""

import json
import re
from pathlib import Path, PurePath
from typing import Annotated, Any, ClassVar, Literal, Protocol, runtime_checkable

from pydantic import BeforeValidator, field_validator

from agentgym.core.panels import AGENT
from agentgym.core.policy import Policy
from agentgym.core.records import Record
from agentgym.core.settings import SettingsGroup, setting

_REFERENCE = "MODULE:NAME"
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


class AgentSpec(Record):
    """The definition of a saved agent, without its weights.

    Attributes:
        agent: ``module:name`` of the user's agent or of a function that creates it, or
            ``command:`` and a program's command. None means the agent that the scenario
            itself defines.
        max_turns: Maximum number of model calls in one episode, for each agent of a
            team.
    """

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


class AgentSource(SettingsGroup):
    """The settings that describe the user's agent.

    In the settings, ``agent: my_module:agent`` is short for ``agent: {reference:
    my_module:agent}``.
    """

    name: ClassVar = "agent"
    main: ClassVar = "reference"

    reference: str | None = setting(
        None,
        "Your agent, or its factory: module:name, or a graph's name in langgraph.json; "
        "or a program, command:node agent.js. None means the agent that the scenario "
        "defines; if it defines none, the framework's default agent.",
        AGENT,
        option="--agent",
        metavar=_REFERENCE,
    )
    context: str | None = setting(
        None,
        "A function of the task: a graph's runtime context.",
        AGENT,
        option="--context",
        metavar=_REFERENCE,
    )
    inputs: str | None = setting(
        None,
        "A function of the task: more keys of a graph's state, or the graph's whole "
        "input; the first messages of another framework's agent.",
        AGENT,
        option="--inputs",
        metavar=_REFERENCE,
    )
    configurable: Annotated[dict[str, Any], BeforeValidator(_read_keys)] = setting(
        {},
        "key=value of a graph's config[\"configurable\"]; a task's own wins.",
        AGENT,
        option="--configurable",
        metavar="KEY=VALUE",
    )
    on_interrupt: str | None = setting(
        None,
        "A function of an interrupt()'s value: the answer with which a graph resumes.",
        AGENT,
        option="--on-interrupt",
        metavar=_REFERENCE,
    )
    own_tools: Literal["stub"] | None = setting(
        None,
        "How to answer calls of tools that the agent has and the scenario does not "
        "have. stub answers with made-up values of the right types. If None, an agent "
        "with such tools is refused unless `allow_tools` names them.",
        AGENT,
    )
    allow_tools: Annotated[tuple[str, ...], BeforeValidator(_read_names)] = setting(
        (), "Names of the agent's own tools that really run.", AGENT
    )
    allow_host: Annotated[tuple[str, ...], BeforeValidator(_read_names)] = setting(
        (),
        "A machine that your agent's own code may reach in the trial before training, "
        "such as a database. Can be given again. Training does not block any.",
        AGENT,
        option="--allow-host",
        metavar="NAME",
    )
    program_memory_mb: int = setting(
        4096,
        "Memory limit in MB of one episode's program, together with its child "
        "processes.",
        AGENT,
        ge=16,
        le=2**24,
    )
