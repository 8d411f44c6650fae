"""The vocabulary (config, task, tools, trajectory, metrics) and the verbs."""
