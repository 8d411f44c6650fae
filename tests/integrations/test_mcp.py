"""Agents whose tools are a real MCP server's: looked at, trained, and ended with it."""

import json
import sys
import time
from pathlib import Path

import psutil
import pytest

from agentgym import Trainer
from agentgym.core.config import TrainingConfig
from agentgym.integrations.registry import FRAMEWORKS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

SERVER = """
import os, sys
from mcp.server.fastmcp import FastMCP

with open(sys.argv[1], "a") as starts:
    starts.write(f"{os.getpid()}\\n")
shop = FastMCP("shop", log_level="ERROR")

@shop.tool()
def order_status(order_id: str) -> str:
    "Return the status of an order."
    with open(sys.argv[1] + ".calls", "a") as calls:
        calls.write(order_id + "\\n")
    return f"{order_id}: shipped"

@shop.tool()
def cancel_order(order_id: str) -> str:
    "Cancel an order."
    return f"{order_id}: cancelled"

shop.run()
"""
COMMAND = "command={python!r}, args={args!r}"
AGENTS = {
    "langchain": """
from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient

async def clerk(llm):
    server = dict(transport="stdio", {command})
    tools = await MultiServerMCPClient({{"shop": server}}).get_tools()
    return create_agent(llm, tools, system_prompt="You answer for a shop.")
""",
    "autogen": """
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams

clerk = AssistantAgent(
    "clerk",
    model_client=OpenAIChatCompletionClient(model="gpt-4o", api_key="none"),
    workbench=McpWorkbench(StdioServerParams({command})),
    system_message="You answer for a shop.",
    max_tool_iterations=4,
)
""",
    "crewai": """
from crewai import Agent
from crewai.mcp import MCPServerStdio

clerk = Agent(
    role="Clerk", goal="Answer", backstory="You answer for a shop.",
    llm="openai/gpt-4o-mini", mcps=[MCPServerStdio({command})],
)
""",
}


@pytest.mark.parametrize("framework", AGENTS)
def test_an_mcp_server_ends_with_the_run(
    framework: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    server, starts = tmp_path / "shop.py", tmp_path / "starts"
    server.write_text(SERVER)
    module = f"clerk_of_{framework}"
    command = COMMAND.format(python=sys.executable, args=[str(server), str(starts)])
    Path(f"{module}.py").write_text(AGENTS[framework].format(command=command))

    adapter = FRAMEWORKS.get(framework)
    from agentgym.scenarios.tool_tasks.scenario import load_tools

    names = [tool.spec.name for tool in load_tools(f"@{module}:clerk")]
    assert len(names) == 2
    assert adapter is not None
    status = next(name for name in names if "status" in name or name.count("_o_"))
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
        episodes=16,
        tasks_per_step=2,
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
    assert (tmp_path / "starts.calls").exists(), "a call reached the server"
    pids = {int(line) for line in starts.read_text().split()}
    if framework == "autogen":  # looked at, tried, and once for the one worker
        assert len(pids) < 8
    until = time.monotonic() + 20
    while left := [pid for pid in pids if psutil.pid_exists(pid)]:
        assert time.monotonic() < until, left
        time.sleep(0.1)
