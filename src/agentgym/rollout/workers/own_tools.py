"""Answer calls of the agent's own tools that its scenario does not have."""

from collections.abc import Collection
from typing import Any

from agentgym.core.tools import Tool, ToolSpec
from agentgym.errors import UnsupportedError
from agentgym.integrations.base import Adapter, AgentLoop
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.tool_tasks.stubs import returns, stub_answer


def own_stubs(
    scenario: Scenario, adapter: Adapter, agent: AgentLoop, allowed: Collection[str]
) -> list[Tool]:
    """Return replacements for an agent's own tools that answer with made-up values.

    The ``allowed`` tools run for real.
    """
    if agent.agent is None:
        return []
    try:
        own = adapter.own_tools(agent.agent)
    except UnsupportedError:
        return []
    known = {tool.name for tool in scenario.tools()} | set(allowed)
    return [_stub(tool) for tool in own if tool.spec.name not in known]


def _stub(tool: Tool) -> Tool:
    spec: ToolSpec = tool.spec
    schema = returns(tool.function)

    def answer(**arguments: Any) -> str:
        return stub_answer(spec.name, schema, arguments, {})

    return Tool(spec, answer)
