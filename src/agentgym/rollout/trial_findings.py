"""Read facts about an agent from the trajectories of a trial."""

from typing import Any

from agentgym.core.trajectory import RolloutStatus, Trajectory
from agentgym.models.forms import answers_any_object
from agentgym.rollout.workers.assemble import ENDED


def offered_tools(trials: list[Trajectory]) -> dict[str, dict[str, Any]]:
    """Return the tools that the model was offered, as OpenAI functions, by name."""
    return {
        str(tool["function"]["name"]): tool["function"]
        for made in trials
        for call in made.model_calls
        for tool in call.tools
        if isinstance(tool.get("function"), dict)
    }


def is_lost(made: Trajectory) -> bool:
    """Return whether a trial stopped to wait for a person, or was dropped."""
    waits = made.reason is not None and made.reason.kind == "interrupt"
    return waits or made.status is RolloutStatus.DROPPED


def is_unfit(made: Trajectory) -> bool:
    """Return whether the agent's code refused a made-up JSON object.

    A trial cannot know which fields the code needs, since the request has no schema.
    """
    calls = made.model_calls
    is_wrong = made.reason is not None and made.reason.kind == "wrong form"
    return is_wrong and bool(calls) and answers_any_object(calls[-1])


def calls_replaced(trials: list[Trajectory]) -> list[str]:
    """Return the names of tools that were called, but have no recorded outcome."""
    names: dict[str, None] = {}
    for made in trials:
        ended = {call.id for call in made.get_tool_calls()}
        asked = [call for each in made.model_calls for call in each.tool_calls]
        names |= {call.name: None for call in asked if call.id not in ended}
    return list(names)


def calls_ending(trials: list[Trajectory]) -> list[str]:
    """Return the names of tools whose call ended the agent and ran nothing."""
    ended = [t.get_tool_calls()[-1] for t in trials if t.get_tool_calls()]
    return list(dict.fromkeys(call.name for call in ended if call.result == ENDED))
