"""nano, the built-in policy: weights, tokenizer, chat template and model card.

The folder loads with plain transformers::

    model = AutoModelForCausalLM.from_pretrained(nano_path())
    tokenizer = AutoTokenizer.from_pretrained(nano_path())
"""

from pathlib import Path


def nano_path() -> Path:
    """Return the folder of the built-in policy nano."""
    return Path(__file__).parent
