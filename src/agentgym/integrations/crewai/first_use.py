"""Build CrewAI's shared objects before episodes use them in threads.

CrewAI's episodes run in threads. In its first run, CrewAI iterates over the attributes
of its executor class and then adds one. If two episodes start together, one would fail
with "dictionary changed size during iteration".
"""

import openai.resources.chat  # noqa: F401 - the client imports it at its first request
from crewai.agents.agent_executor import AgentExecutor

from agentgym.integrations.openai_client import build_models


def build_shared() -> None:
    """Build these objects once, before several threads would do so at the same time."""
    AgentExecutor.flow_definition()
    build_models()
