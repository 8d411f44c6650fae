"""Rollouts of any agent for TRL's GRPOTrainer, which does the training."""

from agentgym.plugins.trl.rollouts import AgentRollouts

__all__ = ["AgentRollouts"]
