"""AgentSpec: the definition of an agent, apart from its weights."""

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, field_validator

from agentgym.core.policy import Policy


class AgentSpec(BaseModel):
    """The definition of an agent, apart from its weights.

    Attributes:
        scenario: The scenario that it was trained on, which has its tools by default.
        framework: The framework that it was trained in.
        agent: ``module:name`` of the user's own factory, None for the scenario's.
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
