"""Export a trained agent as an AutoGen agent."""

import re
from collections.abc import Sequence
from typing import Any

from autogen_agentchat.base import ChatAgent, Team
from autogen_core.models import ChatCompletionClient

from agentgym.core.agent import Trained
from agentgym.errors import UsageError
from agentgym.integrations.agent_import import (
    load_trained,
    make,
    takes_model,
    takes_tools,
)
from agentgym.integrations.autogen.clients import POLICY_INFO, PlainOpenAIClient
from agentgym.integrations.autogen.copies import with_model
from agentgym.integrations.autogen.describe import default_agent, require_runner
from agentgym.integrations.autogen.model import PolicyClient
from agentgym.integrations.autogen.tools import bound_tool
from agentgym.integrations.example_tools import example_tools
from agentgym.models.served import served_name


def export(
    trained: Trained,
    *,
    tools: Sequence[Any] | None = None,
    agent: Any = None,
    base_url: str | None = None,
    api_key: str | None = None,
) -> ChatAgent | Team:
    """Return a trained agent as an AutoGen agent; see ``TrainedAgent.to_autogen``.

    Raises:
        UsageError: ``tools`` are given, but the agent has its own tools.
    """
    spec = trained.spec
    named = spec.agent if agent is None else agent
    if named is None:
        name = re.sub(r"\W|^(?=\d)", "_", spec.scenario)  # an identifier is required
        offered = _offered(trained, tools)
        model = _client(trained, base_url, api_key)
        return default_agent(name, model, offered, spec.system_prompt, spec.max_turns)
    found = load_trained(trained, agent, "to_autogen")
    origin = named if isinstance(named, str) else type(named).__name__
    given = takes_tools(found)
    if tools is not None and not given:
        raise UsageError(
            f"{origin} has its own tools: leave tools={tools!r} out, or give a "
            "function make_agent(llm, tools) as agent=."
        )
    offered = _offered(trained, tools) if given else []
    model = _client(trained, base_url, api_key)
    made: ChatAgent | Team = make(found, origin, llm=model, tools=offered)
    require_runner(made, origin)
    return made if takes_model(found) else with_model(made, model)


def _offered(trained: Trained, tools: Sequence[Any] | None) -> list[Any]:
    if tools is not None:
        return list(tools)
    return [bound_tool(tool) for tool in example_tools(trained, "to_autogen")]


def _client(
    trained: Trained, base_url: str | None, api_key: str | None
) -> ChatCompletionClient:
    if base_url is None:
        return PolicyClient.of(trained)
    return PlainOpenAIClient(
        model=served_name(base_url, api_key, trained.spec.served_name),
        base_url=base_url,
        api_key=api_key or "none",
        temperature=trained.spec.temperature,
        max_tokens=trained.spec.max_tokens,
        model_info=POLICY_INFO,
    )
