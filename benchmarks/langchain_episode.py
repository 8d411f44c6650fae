"""The two-call LangChain agent as Agent Lightning's controller starts it."""

import os

import httpx
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def list_files(path: str = ".") -> str:
    """List the files in a folder."""
    return "app.py\ntests/test_app.py"


class Agent:
    """One rollout: a tool call, an answer, a reward."""

    def run(self) -> None:
        """Run the agent once and report its reward."""
        key = os.environ["AGL_KEY"] or "none"
        llm = ChatOpenAI(
            model="instant",
            base_url=os.environ["AGL_OPENAI_BASE_URL"],
            api_key=lambda: key,
            max_retries=0,
        )
        graph = create_agent(model=llm, tools=[list_files], system_prompt="Help.")
        graph.invoke({"messages": [("user", "List the files.")]})
        event = {"event_type": "reward", "data": {"value": 1.0}}
        headers = {"Authorization": f"Bearer {key}"}
        httpx.post(
            os.environ["AGL_EVENT_URL"], json=event, headers=headers
        ).raise_for_status()
