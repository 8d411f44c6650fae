"""Convert models in GGUF files: SmolLM2 from its package, and users' files.

A file is converted once, to a folder of safetensors in ``AGENTGYM_HOME/models``. Every
engine can load this folder.
"""

from agentgym.models.gguf.cache import (
    SMOLLM2,
    converted_folder,
    is_converted,
    source_of,
)

__all__ = ["SMOLLM2", "converted_folder", "is_converted", "source_of"]
