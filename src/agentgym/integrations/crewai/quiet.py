"""Run CrewAI without its telemetry, traces and messages."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

QUIET = {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_DISABLE_VERSION_CHECK": "true",
    "CREWAI_TRACING_ENABLED": "false",
}
"""Variables that are set if CrewAI runs in a process of AgentGym's own."""


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set environment variables for as long as the context lasts."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def silence() -> None:
    """Let CrewAI print no panels, as ``Crew(verbose=False)`` does for its process."""
    from crewai.events.event_listener import event_listener

    event_listener.formatter.verbose = False
