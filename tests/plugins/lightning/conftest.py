"""The command line in this process."""

from tests.cli.conftest import agentgym

__all__ = ["agentgym"]
