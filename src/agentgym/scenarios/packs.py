"""Find scenario packs on disk, and read their descriptions without an import.

A pack is a folder with ``scenario.py``. Users select a pack in ``./scenarios`` by its
name, and other packs by the path of the folder or the file.
"""

import os
from typing import TYPE_CHECKING, NamedTuple

from agentgym.scenarios.options import has_options

if TYPE_CHECKING:
    import ast

PACKS_FOLDER = "scenarios"
PACK_FILE = "scenario.py"
CARD_FIELDS = ("name", "description", "difficulty", "estimated_time")


class PackCard(NamedTuple):
    """The data of a pack that a list of scenarios shows.

    Attributes:
        problem: Why the pack cannot be read; "" if it can be read.
    """

    name: str
    description: str
    difficulty: str
    estimated_time: str
    path: str
    problem: str = ""


def is_path(reference: str) -> bool:
    """Return whether a reference to a scenario is a path, not a name."""
    if has_options(reference):
        return False
    return os.sep in reference or reference in (".", "..") or reference.endswith(".py")


def is_tasks_file(reference: str) -> bool:
    """Return whether a reference is a tasks file, maybe with options."""
    return reference.partition("?")[0].endswith(".jsonl")


def locate_pack(reference: str) -> str | None:
    """Return the absolute path of a scenario pack."""
    path = reference if is_path(reference) else os.path.join(PACKS_FOLDER, reference)
    path = os.path.abspath(os.path.expanduser(path))
    if os.path.isfile(os.path.join(path, PACK_FILE)):
        return path
    if path.endswith(".py") and os.path.isfile(path):
        folder, file = os.path.split(path)
        return folder if file == PACK_FILE else path
    return None


def pack_name(path: str) -> str:
    """Return a pack's name: the name of its folder, or of its file without ``.py``."""
    return os.path.basename(path).removesuffix(".py")


def shown_name(reference: str) -> str:
    """Return a short name for a scenario, such as ``tasks.jsonl (app:agent)``."""
    path, _, options = reference.partition("?")
    name = pack_name(path)
    if not options or not is_tasks_file(path):
        return name
    from urllib.parse import parse_qs

    tools = [each.removeprefix("@") for each in parse_qs(options).get("tools", [])]
    return f"{name} ({', '.join(tools)})" if tools else name


def pack_cards(folder: str = PACKS_FOLDER) -> list[PackCard]:
    """Return the data of each pack in ``folder``, sorted by name; import none."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    except OSError:
        return []
    paths = [os.path.join(folder, name) for name in names]
    return [
        _card(path) for path in paths if os.path.isfile(os.path.join(path, PACK_FILE))
    ]


def _card(path: str) -> PackCard:
    """Return the data of a pack, parsed from its source without an import."""
    import ast

    name = pack_name(path)
    try:
        with open(os.path.join(path, PACK_FILE), encoding="utf-8") as file:
            tree = ast.parse(file.read())
    except SyntaxError as error:
        return PackCard(name, "", "", "", path, f"syntax error, line {error.lineno}")
    except (OSError, ValueError) as error:
        return PackCard(name, "", "", "", path, f"cannot be read: {error}")
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    found = max(map(_texts, classes), key=len, default={})
    if "name" not in found:
        return PackCard(name, "", "", "", path, "no scenario class with a name")
    _, description, difficulty, time = (found.get(key, "") for key in CARD_FIELDS)
    return PackCard(name, description, difficulty, time, path)


def _texts(node: "ast.ClassDef") -> dict[str, str]:
    """Return the attributes in ``CARD_FIELDS`` that a class sets to string literals."""
    import ast

    found = {}
    for statement in node.body:
        match statement:
            case ast.Assign([ast.Name(field)], ast.Constant(str(value))):
                found[field] = value
            case ast.AnnAssign(ast.Name(field), _, ast.Constant(str(value))):
                found[field] = value
    return {field: found[field] for field in CARD_FIELDS if field in found}
