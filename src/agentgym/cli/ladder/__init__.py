"""The command ``agentgym improve``, which tries ever costlier ways to reach a goal."""
