"""Measure ``agentgym test --replay`` of a LangGraph agent, and its imports alone.

A server with a fixed answer is recorded once. Then the replay is timed as a process of
its own, and so is a process that only imports what the agent imports.

    uv run python benchmarks/contract_replay.py --tasks 50
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from machine import machine

APP = '''
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def book_visit(day: str) -> str:
    """Book a visit on a day."""
    return f"Booked on {day}."


model = ChatOpenAI(model="gpt-4.1-mini", api_key="none")
agent = create_agent(model, [book_visit], system_prompt="You work at a desk.")
'''
IMPORTS = "import langchain.agents, langchain_openai, app"


class Desk(BaseHTTPRequestHandler):
    """Calls the tool with the day that the request names, then says that it is done."""

    def do_POST(self) -> None:
        """Answer a chat completion."""
        size = int(self.headers["Content-Length"])
        last = json.loads(self.rfile.read(size))["messages"][-1]
        message: dict[str, Any] = {"role": "assistant", "content": "Done."}
        if last["role"] == "user":
            day = json.dumps({"day": last["content"].split()[-1]})
            function = {"name": "book_visit", "arguments": day}
            calls = [{"id": "c1", "type": "function", "function": function}]
            message |= {"content": None, "tool_calls": calls}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 50, "completion_tokens": 10, "total_tokens": 60}
        body = {"object": "chat.completion", "choices": [choice], "usage": usage}
        data = json.dumps({"id": "x", "model": "m", "created": 0, **body}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Write nothing."""


def write_project(folder: Path, tasks: int, port: int) -> None:
    """Write an app, its tasks and its contract."""
    (folder / "app.py").write_text(APP)
    lines = [
        {
            "instruction": f"Please book a visit on day-{number}",
            "expect": [{"tool": "book_visit", "args": {"day": f"day-{number}"}}],
        }
        for number in range(tasks)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "tasks.jsonl").write_text(text)
    contract = {
        "agent": "app:agent",
        "tasks": "tasks.jsonl",
        "model": f"http://127.0.0.1:{port}/v1#m",
        "samples": 1,
        "limits": {"pass_1": 0.5},
    }
    (folder / "contract.yaml").write_text(json.dumps(contract))


def timed(folder: Path, *words: str) -> tuple[float, float]:
    """Return the wall and the CPU seconds of a Python process."""
    before, began = os.times(), time.perf_counter()
    subprocess.run(
        [sys.executable, *words], cwd=folder, check=True, capture_output=True
    )
    after = os.times()
    used = after.children_user - before.children_user
    used += after.children_system - before.children_system
    return time.perf_counter() - began, used


def main() -> None:
    """Record, replay, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=50)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Desk)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    test = ("-m", "agentgym", "test", "contract.yaml")
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_project(folder, given.tasks, server.server_port)
        record = timed(folder, *test, "--record")
        server.shutdown()
        runs = range(given.runs)
        replays = [timed(folder, *test, "--replay") for _ in runs]
        imports = [timed(folder, "-c", IMPORTS) for _ in runs]
    wall, used = (median(each[side] for each in replays) for side in (0, 1))
    own_wall, own_used = (median(each[side] for each in imports) for side in (0, 1))
    print(machine())
    print(f"\n{given.tasks} tasks, an attempt each; median of {given.runs}\n")
    print("| | wall s | CPU s |\n|---|---|---|")
    print(f"| record | {record[0]:.1f} | {record[1]:.1f} |")
    print(f"| replay | {wall:.2f} | {used:.2f} |")
    print(f"| imports of the agent alone | {own_wall:.2f} | {own_used:.2f} |")
    share = f"{100 * own_used / used:.0f} %"
    print(f"\nImports of the framework are {share} of the replay's CPU time.")


if __name__ == "__main__":
    main()
