"""Builds, before episodes, the objects of CrewAI that all threads share.

CrewAI's episodes run in threads. At its first run, CrewAI reads the attributes of its
executor's class in a loop, and then adds one: of two episodes that begin together, one
would fail with "dictionary changed size during iteration".
"""

import openai.resources.chat  # noqa: F401 - the client imports it at its first request
from crewai.agents.agent_executor import AgentExecutor

from agentgym.integrations.openai_client import build_models


def build_shared() -> None:
    """Build here, once, the objects that threads would otherwise build at once."""
    AgentExecutor.flow_definition()
    build_models()
