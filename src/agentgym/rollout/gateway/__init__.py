"""HTTP gateway between agents, the model that answers them, and a trainer.

It answers and records agents' model calls. It also serves the HTTP protocol of Agent
Lightning, Microsoft's RL trainer for agents.
"""
