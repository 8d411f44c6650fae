"""Create a tasks file from logs of an agent: users' requests, and the tool calls made.

``tasks.py`` detects the format of a log file. ``langsmith.py``, ``langfuse.py``,
``opentelemetry.py`` and ``atif.py`` read exports of traces. ``reviews.py`` reads a
person's decisions on tool calls, and ``decided.py`` finds such decisions in tool
results. ``message.py`` parses a message in any format, ``trace.py`` converts a trace to
a task, and ``secrets.py`` removes API keys.
"""

from agentgym.scenarios.tool_tasks.logs.reviews import record_review
from agentgym.scenarios.tool_tasks.logs.tasks import FromLogs, from_logs

__all__ = ["FromLogs", "from_logs", "record_review"]
