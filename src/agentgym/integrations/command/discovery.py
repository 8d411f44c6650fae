"""Find a program's tools by starting it once."""

from typing import Any

from agentgym.core.background import in_background
from agentgym.core.task import Split, Task
from agentgym.core.tools import ToolSpec
from agentgym.errors import NoToolsError, RolloutError
from agentgym.integrations.command.attempt import ProgramAttempts
from agentgym.integrations.episode import Episode, EpisodeCut
from agentgym.programs.program import ProgramCommand
from agentgym.scenarios.schemas import spec_of_openai

_SEEN = "its tools were seen"
_TIMEOUT_S = 60.0


def offered_tools(program: ProgramCommand) -> list[ToolSpec]:
    """Start a program, and return the tools in its first model request."""
    return in_background(_offered_tools(program))


async def _offered_tools(program: ProgramCommand) -> list[ToolSpec]:
    seen: list[Any] = []

    async def ask(episode: Episode, body: dict[str, Any], role: str) -> dict[str, Any]:
        seen.extend(body.get("tools") or ())
        episode.turns += 1
        episode.cut_short(_SEEN)
        raise EpisodeCut(_SEEN)

    task = Task(
        id="tools",
        split=Split.TRAIN,
        seed=0,
        family="tools",
        level=1,
        instruction="What can you do?",
    )
    episode = Episode(task)
    attempts = ProgramAttempts(program, "policy", ask, timeout_s=_TIMEOUT_S)
    why = "it offered its model none in its first request"
    try:
        await attempts.run(episode)
    except EpisodeCut:
        pass
    except RolloutError as error:
        why = str(error)
    finally:
        await attempts.close()
    try:
        specs = [spec_of_openai(tool) for tool in seen]
    except ValueError as error:
        specs, why = [], f"of its tools {error}"
    if not specs:
        raise NoToolsError(
            f"The tools of {str(program)!r} cannot be listed: {why}. Write `tools` in "
            "each line of the tasks file, name functions with --tools-from, or judge "
            "by a command: --check-command."
        )
    return list({spec.name: spec for spec in specs}.values())
