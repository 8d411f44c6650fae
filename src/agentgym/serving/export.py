"""Export a trained agent's weights to a folder for transformers, peft and vLLM."""

import os
import shutil
from pathlib import Path
from typing import Literal, get_args

from agentgym.core.agent import Trained
from agentgym.core.files import disk_trouble, new_folder, parse_json
from agentgym.errors import ModelError, UsageError, first_line
from agentgym.models.folder import ADAPTER_FILE, held_adapter, model_source
from agentgym.models.template import keep_template, template_of

Format = Literal["hf", "merged"]

CARD = "README.md"


def export_model(trained: Trained, form: str, folder: Path, card: str) -> Path:
    """Write weights, tokenizer and model card into a new folder; return its path.

    The form ``hf`` writes the weights as they were trained, which may be a LoRA
    adapter. The form ``merged`` merges an adapter into its base model, and writes full
    weights. ``card`` is the model card's text. The folder appears only when it is
    complete.
    """
    if form not in get_args(Format):
        known = " or ".join(get_args(Format))
        raise UsageError(f"No format is named {form!r}; give {known}.")
    if form == "merged" and trained.roles:
        raise UsageError(
            f"{trained.name} has an adapter for each of {', '.join(trained.roles)}, "
            "and merged weights are of one only: give --format hf."
        )
    folder = folder.expanduser().absolute()
    if os.path.lexists(folder):
        raise UsageError(f"{folder} exists already: name a new folder.")
    source = trained.verified_model()
    try:
        with new_folder(folder) as made:
            usual = made.stat().st_mode & 0o777
            if form == "merged" and held_adapter(trained.model_path) is not None:
                _merge_adapter(source, made)
            else:
                shutil.copytree(source, made, dirs_exist_ok=True)
            (made / CARD).write_text(card, encoding="utf-8")
            _open_to_readers(made, usual)
    except (FileExistsError, NotADirectoryError):
        raise UsageError(
            f"{folder} cannot be made: a part of its path is a file."
        ) from None
    except Exception as error:
        message = error.strerror if isinstance(error, OSError) else None
        if (why := disk_trouble(error) or message) is None:
            raise
        raise UsageError(
            f"{folder} cannot be written: {why}. Name another folder."
        ) from error
    return folder


def _open_to_readers(folder: Path, usual: int) -> None:
    """Set the permissions of a folder and its files to those of a new folder.

    Libraries write weights that only this user can read, but a server in a container
    may run as another user. ``usual`` are the permission bits of a new folder.
    """
    folder.chmod(usual)
    for path in folder.rglob("*"):
        path.chmod(usual if path.is_dir() else usual & 0o666)


def _merge_adapter(adapter: Path, folder: Path) -> None:
    """Write the weights of a LoRA adapter's folder, merged in float32, to a folder."""
    from peft import PeftModel
    from safetensors import SafetensorError
    from transformers import AutoTokenizer

    from agentgym.engines.local.architecture import find_class
    from agentgym.engines.local.quiet import quiet

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
