"""Writing a new pack: the one in ``template/`` under another name."""

import re
import shutil
from pathlib import Path

from agentgym.errors import UsageError
from agentgym.scenarios.packs import PACKS_FOLDER
from agentgym.scenarios.registry import BUILT_IN

_TEMPLATE = Path(__file__).parent / "template"
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def write_pack(name: str, folder: Path = Path(PACKS_FOLDER)) -> Path:
    """Write a scenario pack that works, to be changed.

    Args:
        name: Of the scenario and of its folder.
        folder: Where packs lie.

    Returns:
        The pack's folder.

    Raises:
        UsageError: The name is malformed or taken, or the folder exists or cannot be
            written.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name for a scenario; use small letters, digits and _, "
            "as in my_scenario."
        )
    if name in BUILT_IN:
        raise UsageError(f"{name!r} is a built-in scenario; choose another name.")
    target = folder / name
    if target.exists():
        raise UsageError(f"{target} exists; choose another name, or remove it.")
    class_name = "".join(part.capitalize() for part in name.split("_"))
    try:
        shutil.copytree(_TEMPLATE, target, ignore=shutil.ignore_patterns("__pycache__"))
        for path in target.rglob("*.*"):
            text = path.read_text(encoding="utf-8")
            text = text.replace("HeatingScenario", f"{class_name}Scenario")
            text = text.replace('"heating"', f'"{name}"').replace(
                "# heating", f"# {name}"
            )
            text = re.sub(r"(check |scenarios/|scenario: )heating", rf"\1{name}", text)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"Cannot write {target}: {error.strerror}.") from None
    return target
