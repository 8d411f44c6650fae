"""References to scenarios, and packs on disk, whose descriptions need no import.

A reference is a scenario's name, maybe with options: ``bfcl?data=wheel.whl``; or the
path of a pack, a folder with ``scenario.py``; or a tasks file. Users select a pack in
``./scenarios`` by its name.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ast

PACKS_FOLDER = "scenarios"
PACK_FILE = "scenario.py"
CARD_FIELDS = ("name", "description", "difficulty", "estimated_time")
DATA = "data"
"""Name of the option with a file of data."""


class ScenarioCard(NamedTuple):
    """The data of a scenario that a list of scenarios shows.

    Attributes:
        target: Where the scenario is: ``module:class``, or the folder of a pack.
    """

    name: str
    description: str
    difficulty: str
    estimated_time: str
    target: str


def has_options(reference: str) -> bool:
    """Return whether a reference is a scenario's name with options after a ``?``."""
    name, mark, _ = reference.partition("?")
    return bool(mark) and name.replace("_", "").isalnum()


def read_options(reference: str, known: Sequence[str] | None = None) -> dict[str, str]:
    """Return the options of a reference, by name."""
    from urllib.parse import parse_qsl

    from agentgym.errors import UsageError

    name, _, query = reference.partition("?")
    found = dict(parse_qsl(query, keep_blank_values=True))
    for key in found if known is not None else ():
        if key not in (known or ()):
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise UsageError(f"The scenario {name} has no option {key!r}; {has}.")
    return found


def with_options(reference: str, **given: str) -> str:
    """Return a reference with options added, replaced, or removed by an empty value."""
    from urllib.parse import urlencode

    name = reference.partition("?")[0]
    options = {**read_options(reference), **given}
    options = {key: value for key, value in options.items() if value}
    return f"{name}?{urlencode(options, safe='/,')}" if options else name


def with_absolute_data(reference: str) -> str:
    """Return a reference whose option ``data``, if given, is an absolute path."""
    data = read_options(reference).get(DATA, "")
    path = os.path.abspath(os.path.expanduser(data)) if data else ""
    return with_options(reference, **{DATA: path})


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


def pack_cards(folder: str = PACKS_FOLDER) -> list[ScenarioCard]:
    """Return the data of each pack in ``folder``, sorted by name; import none."""
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    paths = [os.path.join(folder, name) for name in names]
    return [
        _card(path) for path in paths if os.path.isfile(os.path.join(path, PACK_FILE))
    ]


def _card(path: str) -> ScenarioCard:
    """Return the data of a pack, parsed from its source without an import."""
    import ast

    problem = ""
    found: dict[str, str] = {}
    try:
        with open(os.path.join(path, PACK_FILE), encoding="utf-8") as file:
            tree = ast.parse(file.read())
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        found = max(map(_texts, classes), key=len, default={})
        if "name" not in found:
            problem = "no scenario class with a name"
    except SyntaxError as error:
        problem = f"syntax error, line {error.lineno}"
    except (OSError, ValueError) as error:
        problem = str(error)
    if problem:
        found["description"] = f"Cannot be loaded: {problem}."
    about, difficulty, time = (found.get(field, "") for field in CARD_FIELDS[1:])
    return ScenarioCard(pack_name(path), about, difficulty, time, path)


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
