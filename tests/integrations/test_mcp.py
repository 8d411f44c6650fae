"""Agents whose tools are a real MCP server's: looked at, trained, and ended with it."""

import json
import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from agentgym import Trainer
from agentgym.core.config import TrainingConfig
from agentgym.scenarios.tool_tasks.scenario import load_tools
from tests.variants import first_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

SERVER = """#!{python}
import os
from pathlib import Path
from mcp.server.fastmcp import FastMCP

STARTS = Path(__file__).with_name("starts")
CALLS = Path(__file__).with_name("calls")
with STARTS.open("a") as starts:
    starts.write(str(os.getpid()) + "\\n")
shop = FastMCP("shop", log_level="ERROR")

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

shop.run()
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
}


@pytest.mark.parametrize("framework", first_of([*AGENTS], 2))
def test_an_mcp_server_ends_with_the_run(
    framework: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    Path("shop").write_text(SERVER.replace("{python}", sys.executable))
    Path("shop").chmod(0o755)
    module = f"clerk_of_{framework}"
    Path(f"{module}.py").write_text(AGENTS[framework])

    # CrewAI's names begin with the server's command.
    status, _ = (tool.spec.name for tool in load_tools(f"@{module}:clerk"))
    tasks = [
        {
            "instruction": f"What is the status of order A-{number}?",
            "expect": [{"tool": status, "args": {"order_id": f"A-{number}"}}],
        }
        for number in range(24)
    ]
    Path("tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)))
    config = TrainingConfig.create(
        scenario=f"tasks.jsonl?tools=@{module}:clerk&answers=live&allow={status}",
        agent=f"{module}:clerk",
        framework=framework,
        gpu="none",
        episodes=32,
        tasks_per_step=4,
        group_size=4,
        test_tasks=3,
        eval_tasks=3,
        eval_samples=1,
        workers=1,
        tracker="none",
        yes=True,
        output=tmp_path / "runs",
    )
    result = Trainer(config).train()
    assert result.steps == 2
    assert result.ledger.trained > 0
    assert Path("calls").exists(), "a call reached the server"
    pids = {int(line) for line in Path("starts").read_text().split()}
    if framework == "autogen":  # one for each process that looks, and a worker
        assert len(pids) < 24 < result.episodes
    until = time.monotonic() + 20
    while left := [pid for pid in pids if psutil.pid_exists(pid)]:
        assert time.monotonic() < until, left
        time.sleep(0.1)
