"""Replace an agent's own tools, which its scenario does not have, by stubs."""

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
    """Return stubs for an agent's own tools; a stub answers with made-up values.

    The scenario's tools and the ``allowed`` tools get no stub.
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
