"""What a ready-made tool is: a class with settings and one ``@tool`` method."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from agentgym.rollout.solo.toolbox.workspace import AttemptWorkspace


class ToolSettings(BaseModel):
    """Settings of a tool; subclasses add fields. Unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class BuiltInTool[S: ToolSettings]:
    """A ready-made tool, made anew for each rollout.

    Attributes:
        name: What users type; the name of its ``@tool`` method.
        settings_type: Its settings.
        needs_sandbox: Whether it runs code.
    """

    name: ClassVar[str]
    settings_type: ClassVar[type[ToolSettings]]
    needs_sandbox: ClassVar[bool] = False

    def __init__(self, settings: S, workspace: AttemptWorkspace) -> None:
        self.settings = settings
        self.workspace = workspace


def cut(text: str, limit: int) -> str:
    """Return ``text``, its middle left out if it has more than ``limit`` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n... ({left_out} characters left out) ...\n{text[-half:]}"
