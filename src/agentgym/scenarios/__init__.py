"""Scenarios to train on: the base class, the registry, and tasks files.

``Scenario`` and the other public names are imported at first use, so that importing
this package is fast.
"""

from typing import TYPE_CHECKING

from agentgym.lazy import lazily

if TYPE_CHECKING:
    from agentgym.scenarios.base import Environment as Environment
    from agentgym.scenarios.base import Scenario as Scenario
    from agentgym.scenarios.registry import BUILT_IN as BUILT_IN
    from agentgym.scenarios.registry import get_scenario as get_scenario
    from agentgym.scenarios.registry import scenario_names as scenario_names
else:
    __getattr__, __dir__, __all__ = lazily(__spec__)
