"""The two-call LangChain agent of both sides, and as Agent Lightning starts it."""

import json
import os
import time
from pathlib import Path
from typing import Any

import httpx
import psutil
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

FILES = "app.py\ntests/test_app.py"


def make_agent(llm: Any, tools: list[Any]) -> Any:
    """Return the agent: the same graph for both."""
    return create_agent(model=llm, tools=tools, system_prompt="Help.")


@tool
def list_files(path: str = ".") -> str:
    """List the files in a folder."""
    return FILES


class Agent:
    """One rollout in a process of its own: a tool call, an answer, a reward."""

    def run(self) -> None:
        """Run the agent once and report its reward, and what building it took."""
        key = os.environ["AGL_KEY"] or "none"
        llm = ChatOpenAI(
            model="instant",
            base_url=os.environ["AGL_OPENAI_BASE_URL"],
            api_key=lambda: key,
            max_retries=0,
        )
        graph = make_agent(llm, [list_files])
        started = time.process_time(), time.time() - psutil.Process().create_time()
        graph.invoke({"messages": [("user", "List the files.")]})
        event = {"event_type": "reward", "data": {"value": 1.0}}
        headers = {"Authorization": f"Bearer {key}"}
        httpx.post(
            os.environ["AGL_EVENT_URL"], json=event, headers=headers
        ).raise_for_status()
        with Path(os.environ["STARTS_FILE"]).open("a") as file:
            file.write(json.dumps(started) + "\n")
