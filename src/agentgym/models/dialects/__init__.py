"""Dialects: convert between other chat APIs and OpenAI's chat completions.

Other parts of AgentGym use only chat completions.
"""

from agentgym.models.dialects.base import Dialect
from agentgym.models.dialects.chat import ChatDialect
from agentgym.models.dialects.messages import MessagesDialect
from agentgym.models.dialects.responses import ResponsesDialect

CONVERTED: tuple[Dialect, ...] = (ResponsesDialect(), MessagesDialect())
"""The dialects of APIs other than chat completions."""
DIALECTS: tuple[Dialect, ...] = (ChatDialect(), *CONVERTED)
