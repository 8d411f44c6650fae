"""Adapters of agent frameworks: the base class, the registry, one file each."""

from agentgym.integrations.base import Adapter, Blueprint, EpisodeCut, RunnableAgent
from agentgym.integrations.registry import framework_names, get_adapter

__all__ = [
    "Adapter",
    "Blueprint",
    "EpisodeCut",
    "RunnableAgent",
    "framework_names",
    "get_adapter",
]
