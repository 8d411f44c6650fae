"""What a sandbox is asked for: limits, concurrency, which rung."""

import os
from dataclasses import dataclass, field

from agentgym.sandbox.guest.settings import Limits


@dataclass(frozen=True, kw_only=True)
class SandboxConfig:
    """How to open a sandbox.

    Attributes:
        rung: Name of the rung to use (see ``guest.settings.RUNGS``), or None for the
            safest that works on this machine.
        warm: Whether executions fork from a long-lived interpreter. A cold sandbox
            starts a new one for each.
        concurrency: Executions in flight at one time.
        limits: What one execution may use.
        cache_entries: How many results to remember; 0 for none.
        unsafe_local_exec: Whether to run with no isolation at all where nothing
            better works.
    """

    rung: str | None = None
    warm: bool = True
    concurrency: int = field(default_factory=lambda: min(4, os.cpu_count() or 1))
    limits: Limits = field(default_factory=Limits)
    cache_entries: int = 1024
    unsafe_local_exec: bool = False
