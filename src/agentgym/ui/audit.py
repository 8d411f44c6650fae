"""Show the entries of an audit log: an action, such as a command, and its caller."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

Entry = Mapping[str, Any]

_SHOWN = frozenset({"at", "what", "process", "rollout", "attempt", "agent", "task"})
_FOR = ("rollout", "attempt", "task", "agent", "tool", "purpose")


def audit_lines(entries: Iterable[Entry]) -> list[str]:
    """Format the entries of an audit log as lines: the action, then its caller."""
    lines = []
    for entry in entries:
        lines.append(f"{_when(entry)}  {_what(entry)}")
        if who := _who(entry):
            lines.append(f"{'':21}for {who}")
    return lines


def _what(entry: Entry) -> str:
    what = entry.get("what", "unknown")
    match what:
        case "executed":
            facts = [str(entry.get("rung")), _end(entry)]
            facts += ["remembered"] if entry.get("cached") else []
            facts += [f"{entry.get('cpu_s', 0):.3f} CPU s"]
            facts += [str(entry["tests"])] if entry.get("tests") else []
            message = f"executed ({', '.join(facts)}): {entry.get('command', '')}"
        case "tool":
            message = (
                f"tool {entry.get('tool')}: {entry.get('outcome')}, arguments "
                f"{entry.get('arguments')}, {entry.get('ms', 0):g} ms"
            )
        case "gateway" | "refused key":
            times = entry.get("times")
            message = (
                f"{what}: {entry.get('method')} {entry.get('path')} answered "
                f"{entry.get('status')}, {entry.get('key') or 'key'} from "
                f"{entry.get('peer')}{f', {times} times' if times else ''}"
            )
        case "machine":
            message = f"machine {entry.get('name')} of {entry.get('provider')}: "
            message += " ".join(str(entry[n]) for n in ("fate", "why") if n in entry)
        case "began":
            message = (
                f"process {entry.get('process')} of {entry.get('user')} on "
                f"{entry.get('host')} began to write: {entry.get('command')}"
            )
        case "lost":
            message = f"{entry.get('lines')} lines could not be written"
        case _:
            rest = {k: v for k, v in entry.items() if k not in _SHOWN}
            message = f"{what} {rest or ''}".rstrip()
    return message


def _end(entry: Entry) -> str:
    if entry.get("exit_code") is not None:
        return f"exit {entry['exit_code']}"
    if entry.get("signal") is not None:
        return f"signal {entry['signal']}"
    return str(entry.get("status", "")).replace("_", " ")


def _who(entry: Entry) -> str:
    named = [
        f"{name} {entry[name]}"
        for name in _FOR
        if entry.get(name) and not (name == "tool" and entry.get("what") == "tool")
    ]
    return ", ".join(named)


def _when(entry: Entry) -> str:
    try:
        at = datetime.fromisoformat(str(entry.get("at"))).astimezone()
    except ValueError:
        return f"{'?':19}"
    return f"{at:%Y-%m-%d %H:%M:%S}"
