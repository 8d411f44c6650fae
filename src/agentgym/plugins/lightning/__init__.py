"""The lightning engine: Agent Lightning's trainer updates and serves the policy.

AgentGym's training loop runs the rollouts. The modules ``hooks`` and ``train`` run in
Agent Lightning's own environment; see the README of this folder.
"""
