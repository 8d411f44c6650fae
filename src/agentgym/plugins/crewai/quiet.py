"""Disable CrewAI's telemetry, traces and messages."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

QUIET = {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_DISABLE_VERSION_CHECK": "true",
    "CREWAI_TRACING_ENABLED": "false",
}
"""Environment variables that disable CrewAI's telemetry, update check and traces."""


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set environment variables within the block, and restore them afterwards."""
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
