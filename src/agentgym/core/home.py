"""Where trained agents are kept; light, so that lists need not wait for it."""

import os
from pathlib import Path


def agents_home() -> Path:
    """Return the folder of saved agents, below ``AGENTGYM_HOME``."""
    home = os.environ.get("AGENTGYM_HOME", "~/.agentgym")
    return Path(home).expanduser() / "agents"
