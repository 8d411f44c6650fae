"""Builds what CrewAI makes at its first use and all threads share, before episodes do.

CrewAI's episodes run in threads. At its first run, CrewAI reads the attributes of its
executor's class in a loop, and then adds one: of two episodes that begin together, one
would fail with "dictionary changed size during iteration".
"""

import openai.resources.chat  # noqa: F401 - the client imports it at its first request
from crewai.agents.agent_executor import AgentExecutor

from agentgym.integrations.openai_client import build_models


def build_shared() -> None:
    """Build in this thread what threads would build at once; do nothing later on."""
    AgentExecutor.flow_definition()
    build_models()
