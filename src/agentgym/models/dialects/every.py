"""All supported dialects."""

from agentgym.models.dialects.base import Dialect
from agentgym.models.dialects.chat import ChatDialect
from agentgym.models.dialects.messages import MessagesDialect
from agentgym.models.dialects.responses import ResponsesDialect

CONVERTED: tuple[Dialect, ...] = (ResponsesDialect(), MessagesDialect())
"""The dialects other than chat completions."""
DIALECTS: tuple[Dialect, ...] = (ChatDialect(), *CONVERTED)
