"""Finding an agent by name, or importing one's own."""

from collections.abc import Mapping

from agentgym.errors import NotFoundError, UsageError
from agentgym.integrations.registry import load_factory
from agentgym.rollout.solo.agents.base import RolloutAgent
from agentgym.rollout.solo.agents.coding import CodingAgent
from agentgym.rollout.solo.agents.react import ReactAgent
from agentgym.rollout.solo.agents.tool import ToolAgent

_BUILT_IN: Mapping[str, type[RolloutAgent]] = {
    kind.name: kind for kind in (ReactAgent, ToolAgent, CodingAgent)
}


def agent_names() -> list[str]:
    """Return the names of the built-in agents."""
    return sorted(_BUILT_IN)


def get_agent(agent: str | RolloutAgent | type[RolloutAgent]) -> RolloutAgent:
    """Return an agent.

    Args:
        agent: A name, ``module:Class``, a class that is built without arguments, or
            an instance.

    Raises:
        NotFoundError: No agent has this name.
        UsageError: It cannot be imported or built, or is no :class:`RolloutAgent`.
    """
    found: object = agent
    if isinstance(agent, str):
        if ":" in agent:
            found = load_factory(agent)
        elif agent in _BUILT_IN:
            found = _BUILT_IN[agent]
        else:
            hint = "One of your own is given as module:Class."
            raise NotFoundError("agent for rollouts", agent, _BUILT_IN, hint)
    if isinstance(found, type) and issubclass(found, RolloutAgent):
        kind = found
        try:
            found = kind()
        except TypeError as error:
            raise UsageError(
                f"The agent {kind.__name__} cannot be built without arguments: "
                f"{error}. Give an instance."
            ) from None
    if not isinstance(found, RolloutAgent):
        raise UsageError(f"{agent!r} is no RolloutAgent; subclass it.")
    return found
