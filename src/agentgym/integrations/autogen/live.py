"""What must be known of a live agent or team: members, prompts, tools, models.

AutoGen gives no public access to most of it: a test tells when a version changes it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import ChatAgent, Team
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import BaseTool, StaticWorkbench
from autogen_core.utils import schema_to_pydantic_model

from agentgym.core.background import in_background
from agentgym.core.tools import ToolSpec
from agentgym.errors import UnsupportedError
from agentgym.integrations.base import AgentRole

_MODEL_SLOTS = ("model_client", "_model_client")


def default_agent(
    name: str,
    llm: ChatCompletionClient,
    tools: Sequence[Any],
    system_prompt: str,
    max_calls: int,
) -> AssistantAgent:
    """Return the agent of a scenario, which goes on until it answers."""
    return AssistantAgent(
        name,
        llm,
        tools=list(tools),
        system_message=system_prompt or None,
        max_tool_iterations=max_calls,
    )


def require_runner(agent: Any, origin: str) -> None:
    """Check that ``agent`` is an agent or a team.

    Raises:
        UnsupportedError: It is something else; says what.
    """
    if not isinstance(agent, ChatAgent | Team):
        raise UnsupportedError(
            f"{origin} gave a {type(agent).__name__}, not an agent. Return an "
            "AssistantAgent, or a team such as RoundRobinGroupChat."
        )


def members(agent: Any) -> Iterator[ChatAgent]:
    """Yield an agent itself, or all agents of a team and of the teams within."""
    require_runner(agent, repr(agent))
    if isinstance(agent, ChatAgent):
        yield agent
        return
    for participant in getattr(agent, "_participants", ()):
        yield from members(participant)


def speakers(agent: Any) -> list[ChatAgent]:
    """Return those members that ask a model.

    Raises:
        UnsupportedError: There is none.
    """
    found = [member for member in members(agent) if _slot(member)]
    if not found:
        raise UnsupportedError(f"No agent with a model is to be found in {agent!r}.")
    return found


def role_of(speaker: ChatAgent) -> AgentRole:
    """Return what one agent is told, may call and asks."""
    slot = _slot(speaker)
    prompts = getattr(speaker, "_system_messages", None)
    return AgentRole(
        name=speaker.name,
        system_prompt="\n".join(p.content for p in prompts) if prompts else None,
        tools=list(_specs(speaker)),
        model=getattr(speaker, slot) if slot else None,
    )


def model_slots(agent: Any) -> list[tuple[Any, str]]:
    """Return whose attribute of which name holds a model client.

    Raises:
        UnsupportedError: A team asks a model who speaks next. It hands that to a
            manager of its own when it first runs, where nobody can exchange it.
    """
    slots: list[tuple[Any, str]] = []
    teams = [agent] if isinstance(agent, Team) else []
    while teams:
        team = teams.pop()
        if _slot(team):
            raise UnsupportedError(
                f"{type(team).__name__} asks a model who speaks next, which cannot be "
                "exchanged. Give a factory instead: def make_agent(llm, tools)."
            )
        inner = getattr(team, "_participants", ())
        teams += [member for member in inner if isinstance(member, Team)]
    for member in members(agent):
        if slot := _slot(member):
            slots.append((member, slot))
    return slots


def _slot(holder: Any) -> str | None:
    for name in _MODEL_SLOTS:
        if isinstance(getattr(holder, name, None), ChatCompletionClient):
            return name
    return None


def _specs(speaker: ChatAgent) -> Iterator[ToolSpec]:
    for workbench in getattr(speaker, "_workbench", None) or ():
        if isinstance(workbench, StaticWorkbench) and not workbench._tool_overrides:
            yield from map(_spec, workbench._tools)
            continue
        for schema in in_background(workbench.list_tools()):
            name, parameters = schema["name"], dict(schema.get("parameters", {}))
            model = schema_to_pydantic_model(parameters, model_name=name)
            yield ToolSpec(name, schema.get("description", ""), model)
    yield from map(_spec, getattr(speaker, "_handoff_tools", ()))


def _spec(tool: BaseTool[Any, Any]) -> ToolSpec:
    return ToolSpec(tool.name, tool.description, tool.args_type())
