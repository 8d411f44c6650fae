"""Build CrewAI's shared objects before episodes use them in threads.

In its first run, CrewAI iterates over the attributes of its executor class and then
adds an attribute. If two episodes start at the same time, each in its own thread, one
episode would fail with "dictionary changed size during iteration".
"""

import openai.resources.chat  # noqa: F401 - the client imports it at its first request
from crewai.agents.agent_executor import AgentExecutor

from agentgym.integrations.openai_client import build_models


def build_shared() -> None:
    """Build the shared objects of CrewAI and openai in one thread."""
    AgentExecutor.flow_definition()
    build_models()
