"""Engines: what generates from a policy and updates it."""

from agentgym.engines.base import (
    ChatRequest,
    ChatResult,
    Engine,
    Policy,
    UpdateMetrics,
)

__all__ = ["ChatRequest", "ChatResult", "Engine", "Policy", "UpdateMetrics"]
