"""Create a tasks file from logs: the users' requests, and their calls.

``message.py`` parses a message in any format, ``trace.py`` converts the calls for one
request to a task. ``langsmith.py``, ``langfuse.py`` and ``opentelemetry.py`` read
exports, ``reviews.py`` reads a person's decisions on calls, ``secrets.py`` removes API
keys, and ``tasks.py`` detects a file's format.
"""

from agentgym.scenarios.tool_tasks.logs.reviews import record_review
from agentgym.scenarios.tool_tasks.logs.tasks import FromLogs, from_logs

__all__ = ["FromLogs", "from_logs", "record_review"]
