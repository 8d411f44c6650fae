"""The lists of scenarios, runs and agents, from what is on disk and no heavy import.

Each function returns the text to print: aligned columns, or JSON.
"""

import os
from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

Row = dict[str, Any]
UNREADABLE = "unreadable"


def scenarios(*, as_json: bool = False) -> str:
    """Return the scenarios that can be trained on."""
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
    return _render(rows, as_json, empty="No scenarios are installed.")


def runs(output: "Path | str" = "runs", *, as_json: bool = False) -> str:
    """Return the runs below ``output``, oldest first."""
    from pathlib import Path

    rows = [_run_row(path) for path in sorted(Path(output).glob("*/run.json"))]
    return _render(
        rows,
        as_json,
        empty=f"No runs in {output}. Start one with: agentgym train coding",
    )


def agents(*, as_json: bool = False) -> str:
    """Return the agents saved in ``AGENTGYM_HOME``."""
    from agentgym.core.files import agents_home

    home = agents_home()
    rows = [_agent_row(path) for path in sorted(home.glob("*/agent.json"))]
    return _render(
        rows,
        as_json,
        empty=f"No agents in {home}. Train one with: agentgym train coding",
    )


def _run_row(record: "Path") -> Row:
    from agentgym.scenarios.packs import pack_name

    data = _read(record)
    if not isinstance(data.get("config"), dict):
        data = {}  # it has no status to be trusted
    result = _read(record.with_name("result.json"))
    return {
        "name": record.parent.name,
        "status": run_status(record.parent, data),
        "scenario": pack_name(_text(data, "config", "scenario")),
        "framework": _text(data, "config", "framework"),
        "updated": _text(data, "updated"),
        "success": _change(result, "pass_1"),
        "tool_reliability": _change(result, "tool_reliability"),
    }


def run_status(run: "Path", record: Row) -> str:
    """Return a run's status; one that says running without a process was killed."""
    status = str(record.get("status", UNREADABLE))
    if status != "running":
        return status
    try:
        os.kill(int((run / ".lock").read_text()), 0)
    except (OSError, ValueError, OverflowError):
        return "killed"
    return status


def _agent_row(card: "Path") -> Row:
    data = _read(card)
    return {
        "name": card.parent.name,
        "scenario": _text(data, "spec", "scenario") or UNREADABLE,
        "base": _text(data, "provenance", "base_model"),
        "created": _text(data, "provenance", "created"),
        "success": _change(data, "pass_1"),
        "tool_reliability": _change(data, "tool_reliability"),
    }


def _change(data: Row, metric: str) -> dict[str, float] | None:
    """Return a metric's values before and after training, None if not measured."""
    before = _at(data, "baseline", metric, "value")
    after = _at(data, "metrics", metric, "value")
    if _is_number(before) and _is_number(after):
        return {"before": before, "after": after}
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and isfinite(value)


def _text(data: Row, *keys: str) -> str:
    """Return the text at a place of a record, empty if there is none."""
    value = _at(data, *keys)
    return value if isinstance(value, str) else ""


def _at(data: Any, *keys: str) -> Any:
    """Return what stands at a place of a record, None if it has no such place."""
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _read(path: "Path") -> Row:
    """Return the object in a file; without any, or with anything else, an empty one."""
    import json

    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _render(rows: list[Row], as_json: bool, empty: str) -> str:
    """Lay rows out in columns, or as a JSON array of objects."""
    if as_json:
        import json

        return json.dumps(rows, indent=2, ensure_ascii=False) + "\n"
    if not rows:
        return empty + "\n"
    columns = list(rows[0])
    table = [[column.replace("_", " ").upper() for column in columns]]
    table += [[_cell(row[column]) for column in columns] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        for cells in table
    )
    return "".join(line.rstrip() + "\n" for line in lines)


def _cell(value: str | dict[str, float] | None) -> str:
    if isinstance(value, dict):
        return f"{100 * value['before']:.0f} % -> {100 * value['after']:.0f} %"
    return value or ""
