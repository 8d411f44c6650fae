"""Rollouts of agents that their authors wrote, of any framework."""

from pathlib import Path
from typing import Any

from agentgym.core.trajectory import Trajectory
from agentgym.engines.scripted import Reply, ScriptedPolicy
from tests.rollout.sessions import requests, session

LIST = Reply(calls=[("list_files", {})])
OK = Reply("Okay.")


def run_all(
    folder: Path, framework: str, agent: str, respond: Any, count: int, **settings: Any
) -> list[Trajectory]:
    """Run rollouts whose model is a function of the request."""
    folder.mkdir(exist_ok=True)
    with session(
        folder,
        ScriptedPolicy(respond),
        framework=framework,
        agent=f"tests.plugins.{framework}.authored:{agent}",
        max_attempts=1,
        **settings,
    ) as opened:
        return opened.run(requests(count), lambda _: None)


def run(
    folder: Path, framework: str, agent: str, *script: Reply, **settings: Any
) -> Trajectory:
    """Run one rollout whose model gives these replies, by number of the call."""
    replies = iter(script)

    def respond(request: Any) -> Reply:
        return next(replies, OK)

    [found] = run_all(folder, framework, agent, respond, 1, **settings)
    return found


def acting(found: Trajectory) -> list[tuple[str, str, bool]]:
    """Return the calls of ``list_files``: outcome, and whether the episode answered."""
    return [
        (call.name, call.outcome.value, ".py" in call.result)
        for call in found.get_tool_calls()
        if call.name == "list_files"
    ]


def roles(found: Trajectory) -> list[str]:
    """Return who made each model call."""
    return [call.agent for call in found.model_calls]


def told_last(found: Trajectory) -> str:
    """Return the last message that the model was sent."""
    return str(found.model_calls[-1].messages[-1]["content"])
