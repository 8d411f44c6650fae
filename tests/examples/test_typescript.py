"""The agents of examples/typescript, each looked into: its tools, and a trial.

Slow: npm installs packages, and each attempt is a process. Without Node, or a registry
that has the packages, they are skipped.
"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.rollout.absolute_paths import located
from agentgym.rollout.inspection import probed

EXAMPLES = Path(__file__).parents[2] / "examples"
HERE = EXAMPLES / "typescript"
PACKAGES = {
    "ai_sdk.mjs": ["ai", "@ai-sdk/openai-compatible", "zod"],
    "mastra.mjs": ["@mastra/core", "zod"],
    "claude.mjs": ["@anthropic-ai/claude-agent-sdk", "zod"],
}
TASKS = EXAMPLES / "any_program" / "tasks.jsonl"
PREFIX = "mcp__shop__"
"""Before the names of an MCP server's tools in the Claude Agent SDK."""


def test_each_agent_is_short_and_knows_nothing_of_training() -> None:
    needed = json.loads((HERE / "package.json").read_text())["dependencies"]
    assert set(needed) == {name for names in PACKAGES.values() for name in names}
    for name in PACKAGES:
        text = (HERE / name).read_text()
        assert len(text.splitlines()) <= 40
        assert "agentgym" not in text.lower().replace("nothing of agentgym", "")
        assert f"`{name}`" in (HERE / "README.md").read_text()


def installed(folder: Path, agent: str) -> Path:
    """Copy an agent into a folder, and install its packages there."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    needed = json.loads((HERE / "package.json").read_text())
    versions = needed["dependencies"]
    needed["dependencies"] = {name: versions[name] for name in PACKAGES[agent]}
    (folder / "package.json").write_text(json.dumps(needed))
    for name in (agent, "shelf.mjs"):
        shutil.copy(HERE / name, folder)
    words = ["npm", "install", "--silent", "--no-audit", "--no-fund"]
    if subprocess.run(words, cwd=folder, check=False).returncode != 0:
        pytest.skip(f"npm cannot install {', '.join(PACKAGES[agent])}")
    return folder / agent


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("agent", PACKAGES)
def test_an_agent_can_be_trained(tmp_path: Path, agent: str) -> None:
    program, tasks = installed(tmp_path, agent), TASKS.read_text()
    before = PREFIX if agent == "claude.mjs" else ""
    named = tmp_path / "tasks.jsonl"
    named.write_text(tasks.replace('"tool": "', f'"tool": "{before}'))
    config = TrainingConfig.create(scenario=str(named), agent=f"command:node {program}")
    report = probed(located(config))
    assert report.problems == []
    wanted = {f"{before}{name}": "really runs" for name in ("stock", "order")}
    assert report.own == wanted
