"""List scenarios, runs and agents from files, without heavy imports.

Each function returns the text to print: aligned columns, or JSON.
"""

import os
import shutil
from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from agentgym.train.versions import Version

Row = dict[str, Any]
UNREADABLE = "unreadable"


def scenarios(*, as_json: bool = False) -> str:
    """Return a list of the scenarios that can be trained on, as text."""
    from agentgym.scenarios.registry import scenario_cards

    rows: list[Row] = [
        {
            "name": card.name,
            "difficulty": card.difficulty,
            "time": card.estimated_time,
            "description": card.description,
        }
        for card in scenario_cards()
    ]
    return _render(rows, as_json, "No scenarios are installed.")


def runs(output: "Path | str" = "runs", *, as_json: bool = False) -> str:
    """Return a list of the runs below ``output``, oldest first, as text."""
    from pathlib import Path

    rows = [_run_row(path) for path in sorted(Path(output).glob("*/run.json"))]
    empty = f"No runs in {output}. Start one with: agentgym train coding"
    if as_json:
        return _render(rows, as_json, empty)
    below = ["scenario", "framework", "updated", "tool_reliability"]
    if any(row["machine"] for row in rows):  # otherwise the column would be empty
        rows = [{**row, "machine": _bill(row["machine"])} for row in rows]
        below.append("machine")
    else:
        rows = [_without(row, ("machine",)) for row in rows]
    return _render(rows, as_json, empty, below=below)


def _bill(machine: Row | None) -> str:
    if machine is None:
        return ""
    if machine["provider"] is None:
        return "machine.json unreadable"
    more = ", may cost more" if machine["open"] else ""
    return f"{machine['provider']} ${machine['cost']:.2f}{more}"


def _run_row(path: "Path") -> Row:
    from agentgym.scenarios.packs import shown_name
    from agentgym.train.status import machine_of, run_status

    data, result = _read(path), _read(path.with_name("result.json"))
    if not isinstance(data.get("config"), dict):
        data = {}  # its status cannot be trusted
    return {
        "name": path.parent.name,
        "status": run_status(path.parent, data),
        "scenario": shown_name(_text(data, "config", "scenario")),
        "framework": _text(data, "config", "framework"),
        "updated": _text(data, "updated"),
        **_changes(result),
        "machine": machine_of(path.parent),
    }


def agents(*, as_json: bool = False) -> str:
    """Return a list of the agents saved in ``AGENTGYM_HOME``, as text.

    Each version of an agent has a row, the oldest version first.
    """
    from agentgym.core.files import agents_folder
    from agentgym.train.versions import Versions, saved_names

    rows = []
    for name in saved_names():
        versions = Versions(name)
        default = versions.default()
        rows += [_agent_row(each, each == default) for each in versions.all()]
    if not as_json:
        for row in rows:
            row["created"] = row["created"].partition("T")[0]
    empty = f"No agents in {agents_folder()}. Train one with: agentgym train coding"
    return _render(rows, as_json, empty, below=("scenario", "model", "run"))


def _agent_row(version: "Version", is_default: bool) -> Row:
    from agentgym.train.versions import AGENT_FILE

    data = _read(version.path / AGENT_FILE)
    scenario = _text(data, "spec", "scenario")
    return {
        "name": str(version),
        "default": is_default,
        **_changes(data),
        "created": _text(data, "provenance", "created") if scenario else UNREADABLE,
        "scenario": scenario,
        "model": _text(data, "provenance", "base_model"),
        "run": os.path.basename(_text(data, "provenance", "run")),
    }


def _changes(data: Row) -> Row:
    """Return an agent's pass^1 and tool reliability, both before and after training.

    A metric is None if it was not measured both before and after.
    """
    changes: Row = {}
    for name, metric in (("success", "pass_1"), ("tool_reliability",) * 2):
        before = _at(data, "baseline", metric, "value")
        after = _at(data, "metrics", metric, "value")
        known = all(isinstance(x, int | float) and isfinite(x) for x in (before, after))
        changes[name] = {"before": before, "after": after} if known else None
    return changes


def _text(data: Row, *keys: str) -> str:
    """Return the text under nested ``keys`` of a record; "" if there is no text."""
    value = _at(data, *keys)
    return value if isinstance(value, str) else ""


def _at(data: Any, *keys: str) -> Any:
    """Return the value under nested ``keys`` of a record; None if a key is missing."""
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _read(path: "Path") -> Row:
    """Return the JSON object in a file; {} if it cannot be read."""
    import json

    try:
        if not path.is_file():  # reading a pipe would block
            return {}
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _render(
    rows: list[Row], as_json: bool, empty: str, below: "Collection[str]" = ()
) -> str:
    """Format rows as columns, or as a JSON array of objects.

    ``empty`` is the text for a list without rows. If the terminal is narrow, the
    columns ``below`` are shown in a second line of each row.
    """
    if as_json:
        import json

        return json.dumps(rows, indent=2, ensure_ascii=False) + "\n"
    if not rows:
        return empty + "\n"
    lines = _columns(rows)
    width = shutil.get_terminal_size((0, 0)).columns  # 0 for a file or a pipe
    if not below or not width or max(map(len, lines)) <= width:
        return "".join(f"{line}\n" for line in lines)
    lines = _columns([_without(row, below) for row in rows])
    rest = [[name.upper().replace("_", " ") for name in below]]
    rest += [[_cell(row[name]) or "-" for name in below] for row in rows]
    return "".join(
        f"{line}\n  {', '.join(more)}\n" for line, more in zip(lines, rest, strict=True)
    )


def _columns(rows: list[Row]) -> list[str]:
    """Return text lines: a header with the columns' names, and a line per row."""
    lines = [[column.replace("_", " ").upper() for column in rows[0]]]
    lines += [[_cell(value) for value in row.values()] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    columns = "  ".join(f"{{:{width}}}" for width in widths)
    return [columns.format(*cells).rstrip() for cells in lines]


def _without(row: Row, names: "Collection[str]") -> Row:
    return {name: value for name, value in row.items() if name not in names}


def _cell(value: str | bool | dict[str, float] | None) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, dict):
        return f"{100 * value['before']:.0f} % -> {100 * value['after']:.0f} %"
    return value or ""


LISTS = {"scenarios": scenarios, "runs": runs, "agents": agents}
"""The function for each command ``agentgym NAME list``, by NAME."""
