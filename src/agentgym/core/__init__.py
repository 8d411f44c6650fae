"""The shared types and helpers that every other folder imports.

``from agentgym.core import Scenario, Trainer`` gives the public names of ``agentgym``.
"""

import sys
from typing import TYPE_CHECKING

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        package = sys.modules["agentgym"]
        if name in package.__all__:
            return getattr(package, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
