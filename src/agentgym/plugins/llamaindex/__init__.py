"""LlamaIndex: train its function-calling agents, which LlamaIndex itself runs."""
