"""Create a scenario pack (a folder with a scenario) from a template."""

import re
import shutil
from pathlib import Path

from agentgym.errors import UsageError
from agentgym.scenarios.packs import PACKS_FOLDER
from agentgym.scenarios.registry import BUILT_IN

_TEMPLATES = Path(__file__).parent / "templates"
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def write_pack(
    name: str, folder: Path = Path(PACKS_FOLDER), template: str = "heating"
) -> Path:
    """Create a scenario pack that works and that the user then changes."""
    known = sorted(path.name for path in _TEMPLATES.iterdir() if path.is_dir())
    if template not in known:
        raise UsageError(
            f"No template is named {template!r}; known: {', '.join(known)}."
        )
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a name for a scenario; use small letters, digits and _, "
            "as in my_scenario."
        )
    if name in BUILT_IN:
        raise UsageError(f"{name!r} is a built-in scenario; choose another name.")
    target = folder / name
    if target.exists():
        raise UsageError(f"{target} exists; choose another name, or remove it.")
    class_name = "".join(part.capitalize() for part in name.split("_"))
    try:
        shutil.copytree(
            _TEMPLATES / template, target, ignore=shutil.ignore_patterns("__pycache__")
        )
        for path in target.rglob("*.*"):
            text = path.read_text(encoding="utf-8")
            text = re.sub(f"{template.capitalize()}(?=Scenario)", class_name, text)
            named = r'(^# |check |scenarios/|scenario: |name: ClassVar\[str\] = ")'
            text = re.sub(rf"{named}{template}\b", rf"\1{name}", text, flags=re.M)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"Cannot write {target}: {error.strerror}.") from None
    return target
