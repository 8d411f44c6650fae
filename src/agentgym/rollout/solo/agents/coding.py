"""The coding agent: a tool agent with a shell and an editor in a workspace."""

from typing import ClassVar

from agentgym.rollout.solo.agents.tool import ToolAgent


class CodingAgent(ToolAgent):
    """Works on ``task.initial_state["files"]``; commands run in the sandbox."""

    name: ClassVar[str] = "coding"
    system_prompt: ClassVar[str] = (
        "You work on the files of a small project. Look before you change anything: "
        "search, and view files. Make the smallest change that solves the task, run "
        "the code or its tests with bash to check it, then say in one or two "
        "sentences what you did. Paths are relative to the project's folder."
    )
    tools: ClassVar[tuple[str, ...]] = ("bash", "file_editor", "search")
