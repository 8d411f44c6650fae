"""Find agents for rollouts by name: built in, your own, or programs."""

from collections.abc import Mapping
from typing import Any

from agentgym.core.agent import is_command
from agentgym.errors import NotFoundError, UsageError
from agentgym.integrations.agent_import import load_agent
from agentgym.integrations.registry import load_factory
from agentgym.rollout.solo.agents import (
    CodingAgent,
    ReactAgent,
    RolloutAgent,
    ToolAgent,
)
from agentgym.rollout.solo.command import CommandAgent

_BUILT_IN: Mapping[str, type[RolloutAgent]] = {
    kind.name: kind for kind in (ReactAgent, ToolAgent, CodingAgent)
}


def is_for_rollouts(agent: str) -> bool:
    """Return whether a name stands for a :class:`RolloutAgent` or a program.

    Else it is a framework's agent, a saved agent, or nothing.
    """
    if is_command(agent) or agent in _BUILT_IN or ":" not in agent:
        return is_command(agent) or agent in _BUILT_IN
    found = load_agent(agent)
    return isinstance(found, RolloutAgent) or (
        isinstance(found, type) and issubclass(found, RolloutAgent)
    )


def get_agent(agent: str | RolloutAgent | type[RolloutAgent]) -> RolloutAgent:
    """Return the agent for a name, ``module:Class``, ``command:…``, or a class.

    An instance is returned as it is.

    Raises:
        UsageError: The value does not stand for a RolloutAgent.
    """
    found: Any = agent
    if isinstance(agent, str) and is_command(agent):
        return CommandAgent(agent)
    if isinstance(agent, str):
        if ":" not in agent and agent not in _BUILT_IN:
            hint = "Give a class of your own as module:Class."
            raise NotFoundError("agent for rollouts", agent, _BUILT_IN, hint)
        found = _BUILT_IN[agent] if agent in _BUILT_IN else load_factory(agent)
    if isinstance(found, type) and issubclass(found, RolloutAgent):
        try:
            found = found()
        except TypeError as error:
            raise UsageError(
                f"The agent {found.__name__} cannot be built without arguments: "
                f"{error}. Give an instance."
            ) from None
    if not isinstance(found, RolloutAgent):
        raise UsageError(
            f"{agent!r} is a {type(found).__name__}, not a RolloutAgent. Subclass it; "
            "a framework's agent is measured with `agentgym eval TASKS --agent "
            "module:name --model MODEL`."
        )
    return found
