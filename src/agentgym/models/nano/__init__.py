"""nano, the built-in policy: weights, tokenizer, chat template and model card.

The folder loads with plain transformers::

    model = AutoModelForCausalLM.from_pretrained(nano_path())
    tokenizer = AutoTokenizer.from_pretrained(nano_path())
"""

from importlib.resources import files
from pathlib import Path


def nano_path() -> Path:
    """Return the folder of the built-in policy nano."""
    return Path(str(files(__name__)))


__all__ = ["nano_path"]
