"""Make a tasks file from logs: the users' requests, and the calls made for them.

``message.py`` reads a message in any of its spellings, ``trace.py`` makes a task of
the calls for one request. ``langsmith.py``, ``langfuse.py`` and
``opentelemetry.py`` read exports, ``reviews.py`` a person's decisions on calls,
``secrets.py`` takes out keys, and
``tasks.py`` finds out which of all this a file is.
"""

from agentgym.scenarios.tool_tasks.logs.reviews import record_review
from agentgym.scenarios.tool_tasks.logs.tasks import FromLogs, from_logs

__all__ = ["FromLogs", "from_logs", "record_review"]
