"""Read the text and settings of a model's chat template, and save the settings."""

from importlib import resources
from pathlib import Path

from pydantic import ValidationError

from agentgym.core.template_settings import TemplateSettings
from agentgym.errors import ModelError, UsageError, unreadable

TEMPLATE_FILE = "agentgym_template.json"
"""File in a trained model's folder with the template settings of its training."""
HERMES = "hermes"


def template_text(given: str) -> str:
    """Return the template of ``chat_template``: a file, ``hermes`` or its text."""
    if not given or "{" in given:
        return given
    if given == HERMES:
        return (
            resources.files("agentgym.models")
            .joinpath("hermes.jinja")
            .read_text(encoding="utf-8")
        )
    path = Path(given).expanduser()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"The chat template {given!r} cannot be read: {unreadable(error)}. Name a "
            "file with a Jinja template, or hermes."
        ) from None
    if "{" not in text:
        raise UsageError(f"The chat template {path} holds no Jinja template.")
    return text


def template_of(source: str, given: TemplateSettings | None) -> TemplateSettings:
    """Return a folder's template settings, overridden by the changed ``given``."""
    path = Path(source) / TEMPLATE_FILE
    kept = TemplateSettings()
    if path.is_file():
        try:
            kept = TemplateSettings.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            raise ModelError(f"{path} cannot be read: {unreadable(error)}") from None
    if given is None:
        return kept
    changed = given.model_dump(exclude_defaults=True)
    return kept.model_copy(update=changed)


def keep_template(folder: Path, settings: TemplateSettings) -> None:
    """Write template settings into a model's folder; leave defaults out."""
    if settings.chat_template:
        file = folder / "chat_template.jinja"
        file.write_text(settings.chat_template, encoding="utf-8")
    settings = settings.model_copy(update={"chat_template": ""})
    if settings != TemplateSettings():
        text = settings.model_dump_json(indent=2, exclude_defaults=True)
        (folder / TEMPLATE_FILE).write_text(text, encoding="utf-8")
