"""Create a tasks file from logs of an agent: users' requests, and the tool calls made.

``README.md`` lists the files.
"""

from typing import TYPE_CHECKING

from agentgym.lazy import lazily

if TYPE_CHECKING:
    from agentgym.plugins.logs.reviews import record_review as record_review
    from agentgym.plugins.logs.tasks import FromLogs as FromLogs
    from agentgym.plugins.logs.tasks import from_logs as from_logs
else:
    __getattr__, __dir__, __all__ = lazily(__spec__)
