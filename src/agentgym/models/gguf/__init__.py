"""Models in GGUF files: the package of SmolLM2, and users' files.

A file is converted once into ``AGENTGYM_HOME/models``, to a folder of safetensors that
every engine loads.
"""

from agentgym.models.gguf.cache import (
    SMOLLM2,
    converted_folder,
    is_converted,
    source_of,
)

__all__ = ["SMOLLM2", "converted_folder", "is_converted", "source_of"]
