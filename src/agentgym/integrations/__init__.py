"""Adapters of agent frameworks: the interface, and a folder for each framework."""

from typing import TYPE_CHECKING

from agentgym.lazy import lazily

if TYPE_CHECKING:
    from agentgym.integrations.base import FrameworkAdapter as FrameworkAdapter
else:
    __getattr__, __dir__, __all__ = lazily(__spec__)
