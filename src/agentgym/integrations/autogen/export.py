"""A trained agent as an AutoGen agent."""

import re
from collections.abc import Sequence
from typing import Any

from autogen_agentchat.base import ChatAgent, Team
from autogen_core.models import ChatCompletionClient

from agentgym.core.agent import Trained
from agentgym.integrations.autogen.clients import POLICY_INFO, PlainOpenAIClient
from agentgym.integrations.autogen.live import default_agent, require_runner
from agentgym.integrations.autogen.model import PolicyClient
from agentgym.integrations.autogen.tools import bound_tool
from agentgym.integrations.example_tools import example_tools
from agentgym.integrations.registry import load_factory


def export(
    trained: Trained,
    *,
    tools: Sequence[Any] | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
) -> ChatAgent | Team:
    """Build the agent; see ``TrainedAgent.to_autogen``."""
    spec = trained.spec
    if tools is None:
        tools = [bound_tool(tool) for tool in example_tools(trained, "to_autogen")]
    model = _client(trained, base_url, api_key)
    if spec.agent is None:
        name = re.sub(r"\W|^(?=\d)", "_", spec.scenario)  # AutoGen wants an identifier
        return default_agent(name, model, tools, spec.system_prompt, spec.max_turns)
    agent: ChatAgent | Team = load_factory(spec.agent)(model, list(tools))
    require_runner(agent, spec.agent)
    return agent


def _client(
    trained: Trained, base_url: str | None, api_key: str | None
) -> ChatCompletionClient:
    if base_url is None:
        return PolicyClient.of(trained)
    return PlainOpenAIClient(
        model=trained.spec.scenario,
        base_url=base_url,
        api_key=api_key or "none",
        temperature=trained.spec.temperature,
        max_tokens=trained.spec.max_tokens,
        model_info=POLICY_INFO,
    )
