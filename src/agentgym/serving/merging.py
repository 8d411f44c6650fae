"""Merge a LoRA adapter and its base model into full weights."""

from pathlib import Path

from safetensors import SafetensorError
from transformers import AutoTokenizer

from agentgym.core.files import parse_json
from agentgym.engines.local.architecture import find_class
from agentgym.engines.local.quiet import quiet
from agentgym.errors import ModelError, first_line
from agentgym.models.folder import ADAPTER_FILE, model_source
from agentgym.models.template import keep_template, template_of


def merge_adapter(adapter: Path, folder: Path) -> None:
    """Merge a LoRA adapter into its base model; write the model and the tokenizer.

    ``adapter`` is the adapter's folder, written by peft, and ``folder`` the output. The
    merge is computed in float32, and the result has the base model's type.
    """
    from peft import PeftModel  # takes seconds

    try:
        settings = parse_json((adapter / ADAPTER_FILE).read_text(encoding="utf-8"))
        name = str(settings["base_model_name_or_path"])
        with quiet():
            source = model_source(name)
            base = find_class(name, source).from_pretrained(source, dtype="auto")
            dtype = base.dtype
            adapted = PeftModel.from_pretrained(base.float(), str(adapter))
            merged = adapted.merge_and_unload(safe_merge=True).to(dtype)
            tokenizer = AutoTokenizer.from_pretrained(adapter)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        reason = first_line(error)
        raise ModelError(
            f"The adapter in {adapter} cannot be merged: {reason} The model that it "
            "was trained on must be available; without a network, in a folder."
        ) from error
    with quiet():
        merged.save_pretrained(str(folder))
        tokenizer.save_pretrained(folder)
    keep_template(folder, template_of(str(adapter), None))
