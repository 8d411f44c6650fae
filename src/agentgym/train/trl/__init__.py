"""Rollouts of any agent for TRL's GRPOTrainer, without a training loop of our own."""

from agentgym.train.trl.rollouts import AgentRollouts as AgentRollouts
