"""``agentgym skill``: write the skill for coding agents."""

import shutil
from pathlib import Path

import typer

from agentgym.cli.output import progress_console
from agentgym.errors import UsageError

SKILL = Path(__file__).with_name("agentgym")


def skill(
    folder: Path = typer.Argument(
        Path("skills"),
        help="Where your coding agent looks for skills, e.g. .claude/skills.",
    ),
) -> None:
    """Write a skill for coding agents, from an app to a trained agent.

    Example: agentgym skill .claude/skills
    """
    target = folder / SKILL.name
    if target.exists():
        raise UsageError(f"{target} exists: remove it, or give another folder.")
    try:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(SKILL, target, ignore=ignored)
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}.") from None
    progress_console().print(f"The skill is in {target}", soft_wrap=True)
