"""Rollouts on their own need nothing beyond the base installation."""

import subprocess
import sys
from pathlib import Path

SCRIPT = '''
import sys
from importlib.abc import MetaPathFinder

ABSENT = {"torch", "transformers", "peft", "langchain", "langgraph", "langchain_core",
          "langchain_openai", "openai", "autogen_agentchat", "crewai", "verl"}


class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ImportError(f"{name} is absent")
        return None


sys.meta_path.insert(0, Absent())
from pathlib import Path
from agentgym.cli.main import main
from agentgym.rollout import check_continuity, read_jsonl, run_rollouts_sync, tool


@tool
def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


async def llm(messages, **options):
    if messages[-1]["role"] == "tool":
        return messages[-1]["content"]
    names = [t["function"]["name"] for t in options["tools"]]
    call = {"calculator": '{"expression": "6*7"}', "bash": '{"command": "echo 42"}'}
    function = {"name": names[0], "arguments": call[names[0]]}
    return {"tool_calls": [{"id": "c", "function": function}]}


out = Path(sys.argv[1])
for agent, tools in (("tool", ["calculator", shout]), ("coding", None)):
    batch = run_rollouts_sync(["x"] * 20, llm=llm, agent=agent, tools=tools, save=out)
    assert batch.summary.succeeded == 20, batch.summary
    assert {t.answer for t in batch.trajectories} == {"42"}
assert all(not check_continuity(t) for t in read_jsonl(out))
assert main(["rollout", "--show", str(out)]) == 0
assert not ABSENT & set(sys.modules)
'''


def test_batches_run_with_torch_and_frameworks_absent(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(out)], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    assert "40 rollouts: 40 succeeded, 0 failed, 0 dropped" in ended.stdout
