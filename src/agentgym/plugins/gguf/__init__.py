"""Convert models in GGUF files: SmolLM2 from its package, and users' files.

A file is converted once, to a folder of safetensors in ``AGENTGYM_HOME/models``. Every
engine can load this folder.
"""
