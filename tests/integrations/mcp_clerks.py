"""Agents of each framework whose tools are an MCP server's, and their training.

``python -m tests.integrations.mcp_clerks NAME`` trains one, for an environment of its
own.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from agentgym import Trainer
from agentgym.cli.inspect import tools_of, tried
from agentgym.core.config import TrainingConfig
from agentgym.rollout.absolute_paths import located
from agentgym.rollout.inspection import probed

SERVER = """#!{python}
import os
import sys
from pathlib import Path
from mcp.server.fastmcp import FastMCP

STARTS = Path(__file__).with_name("starts")
CALLS = Path(__file__).with_name("calls")
with STARTS.open("a") as starts:
    starts.write(str(os.getpid()) + "\\n")
port = int(sys.argv[1]) if sys.argv[1:] else 0
shop = FastMCP("shop", log_level="ERROR", host="127.0.0.1", port=port)

@shop.tool()
def order_status(order_id: str) -> str:
    "Return the status of an order."
    with CALLS.open("a") as calls:
        calls.write(order_id + "\\n")
    return order_id + ": shipped"

@shop.tool()
def cancel_order(order_id: str) -> str:
    "Cancel an order."
    return order_id + ": cancelled"

shop.run("streamable-http" if port else "stdio")
"""
AGENTS = {
    "langchain": """
from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient

async def clerk(llm):
    server = dict(transport="stdio", command="shop", args=[])
    tools = await MultiServerMCPClient({"shop": server}).get_tools()
    return create_agent(llm, tools, system_prompt="You answer for a shop.")
""",
    "pydantic_ai": """
from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset

clerk = Agent(
    "openai:gpt-5-mini", name="clerk", instructions="You answer for a shop.",
    toolsets=[
        MCPToolset(StdioTransport(command="shop", args=[]), init_timeout=60)
    ],
    defer_model_check=True,
)
""",
    "autogen": """
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams

clerk = AssistantAgent(
    "clerk",
    model_client=OpenAIChatCompletionClient(model="gpt-4o", api_key="none"),
    workbench=McpWorkbench(StdioServerParams(command="shop", args=[])),
    system_message="You answer for a shop.",
    max_tool_iterations=4,
)
""",
    "openai_agents": """
from agents import Agent
from agents.mcp import MCPServerStdio

clerk = Agent(
    name="clerk", instructions="You answer for a shop.",
    mcp_servers=[MCPServerStdio({"command": "shop", "args": []})],
)
""",
    "crewai": """
from crewai import Agent
from crewai.mcp import MCPServerStdio

clerk = Agent(
    role="Clerk", goal="Answer", backstory="You answer for a shop.",
    llm="openai/gpt-4o-mini", mcps=[MCPServerStdio(command="shop", args=[])],
)
""",
    "agent_framework": """
from agent_framework import Agent, MCPStdioTool
from agent_framework.openai import OpenAIChatClient

clerk = Agent(
    OpenAIChatClient(model="gpt-5", api_key="none"), "You answer for a shop.",
    name="clerk", tools=[MCPStdioTool(name="shop", command="shop", args=[])],
)
""",
    "pydantic_ai over http": """
import os
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset

clerk = Agent(
    "openai:gpt-5-mini", name="clerk", instructions="You answer for a shop.",
    toolsets=[MCPToolset(os.environ["SHOP"])], defer_model_check=True,
)
""",
    "openai_agents over http": """
import os
from agents import Agent
from agents.mcp import MCPServerStreamableHttp

clerk = Agent(
    name="clerk", instructions="You answer for a shop.",
    mcp_servers=[MCPServerStreamableHttp({"url": os.environ["SHOP"]})],
)
""",
    "agent_framework over http": """
import os
from agent_framework import Agent, MCPStreamableHTTPTool
from agent_framework.openai import OpenAIChatClient

clerk = Agent(
    OpenAIChatClient(model="gpt-5", api_key="none"), "You answer for a shop.",
    name="clerk", tools=[MCPStreamableHTTPTool(name="shop", url=os.environ["SHOP"])],
)
""",
}


def trained(name: str) -> dict[str, Any]:
    """Inspect and train an agent in the working folder; return what became of it."""
    framework, module = name.split()[0], f"clerk_of_{name.replace(' ', '_')}"
    Path(f"{module}.py").write_text(AGENTS[name])
    reference = f"{module}:clerk"
    # CrewAI's names begin with the server's command.
    status, cancel = (tool.spec.name for tool in tools_of(tried(reference)))
    tasks = [
        {
            "instruction": f"What is the status of order A-{number}?",
            "expect": [{"tool": status, "args": {"order_id": f"A-{number}"}}],
        }
        for number in range(24)
    ]
    Path("tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)))
    config = TrainingConfig.create(
        scenario=f"tasks.jsonl?tools=@{reference}&answers=live&allow={status}",
        agent=reference,
        framework=framework,
        gpu="none",
        episodes=32,
        tasks_per_step=4,
        group_size=4,
        task_choice="uniform",
        test_tasks=3,
        eval_tasks=3,
        eval_samples=1,
        workers=1,
        tracker="none",
        yes=True,
        output=Path("runs").resolve(),
    )
    report = probed(located(config))
    result = Trainer(config).train()
    agent = result.agent
    given = getattr(import_module(module), "clerk")  # noqa: B009 - a function, for some
    return {
        "problems": report.problems,
        "acting": sorted(report.bound),
        "tools": sorted([status, cancel]),
        "steps": result.steps,
        "trained": result.ledger.trained,
        "episodes": result.episodes,
        "kinds": [type(agent).__name__, type(given).__name__],
    }


if __name__ == "__main__":
    sys.path.insert(0, "")
    sys.stdout.write(json.dumps(trained(sys.argv[1])))
