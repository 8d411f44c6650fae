"""Create a tasks file from logs of an agent: users' requests, and the tool calls made.

``tasks.py`` detects the format of a log file, and reads exports of Langfuse and ATIF;
``langsmith.py`` and ``opentelemetry.py`` read those of others. ``reviews.py`` reads a
person's decisions on tool calls. ``message.py`` parses a message in any format, and
``trace.py`` converts a trace to a task.
"""

from typing import TYPE_CHECKING

from agentgym.lazy import lazily

if TYPE_CHECKING:
    from agentgym.plugins.logs.reviews import record_review as record_review
    from agentgym.plugins.logs.tasks import FromLogs as FromLogs
    from agentgym.plugins.logs.tasks import from_logs as from_logs
else:
    __getattr__, __dir__, __all__ = lazily(__spec__)
