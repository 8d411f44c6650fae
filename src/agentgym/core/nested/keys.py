"""Flat keys: other names of nested settings, for options and variables."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from agentgym.core.agent import AgentSource
from agentgym.core.nested.groups import JudgeSettings, RentSettings, VerlSettings

GROUPS: dict[str, type[BaseModel]] = {
    "agent": AgentSource,
    "judge": JudgeSettings,
    "rent": RentSettings,
    "verl": VerlSettings,
}
FLAT_KEYS = {
    "agent": "agent.reference",
    "context": "agent.context",
    "inputs": "agent.inputs",
    "on_interrupt": "agent.on_interrupt",
    "configurable": "agent.configurable",
    "own_tools": "agent.own_tools",
    "allow_tools": "agent.allow_tools",
    "allow_host": "agent.allow_host",
    "program_memory_mb": "agent.program_memory_mb",
    "judge": "judge.model",
    "judge_rubric": "judge.rubric",
    "judge_weight": "judge.weight",
    "judge_price_in": "judge.price_in",
    "judge_price_out": "judge.price_out",
    "judge_max_cost": "judge.max_cost",
    "spot": "rent.spot",
    "max_hourly": "rent.max_hourly",
    "max_cost": "rent.max_cost",
    "nodes": "verl.nodes",
    "offload": "verl.offload",
    "engine_server": "verl.server",
    "verl": "verl.settings",
}
"""For each flat key, the dotted name of the setting: its group and its field.

A flat key that is also a group's name sets this field if its value is not a mapping.
"""


def flattened(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with dotted names for those that belong to a group.

    ``{"judge": {"weight": 1}}`` and ``{"judge_weight": 1}`` become
    ``{"judge.weight": 1}``; if both are given, the flat key wins. A group's unknown
    fields are kept, so that validation reports them.
    """
    found: dict[str, Any] = {}
    for key, value in values.items():
        if key in GROUPS:
            fields = _fields(key, value)
            found |= {name: fields[name] for name in fields if name not in found}
        else:
            found[FLAT_KEYS.get(key, key)] = value
    return found


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings in nested form: each group is a mapping with its fields.

    ``values`` may have nested, dotted and flat keys.
    """
    found: dict[str, Any] = {}
    for key, value in flattened(values).items():
        group, dot, name = key.partition(".")
        if not dot or group not in GROUPS:
            found[key] = value
        elif isinstance(parts := found.setdefault(group, {}), dict):
            parts[name] = value
    return found


def agent_reference(settings: Mapping[str, Any]) -> str | None:
    """Return ``agent.reference`` from a run's recorded settings; None if not set."""
    reference = flattened(settings).get("agent.reference")
    return None if reference is None else str(reference)


def _fields(group: str, value: Any) -> dict[str, Any]:
    """Return the settings of a group by dotted names, e.g. ``judge.weight``."""
    parts = value.model_dump() if isinstance(value, GROUPS[group]) else value
    if not isinstance(parts, Mapping):
        return {FLAT_KEYS.get(group, group): value}
    if group == "verl":  # other names are settings of verl itself
        own = {key: parts[key] for key in parts if key in VerlSettings.model_fields}
        others = {key: parts[key] for key in parts if key not in own}
        given = own.get("settings") or {}
        if isinstance(given, Mapping) and (others or not own):
            own["settings"] = {**given, **others}
        parts = own
    return {f"{group}.{key}": parts[key] for key in parts}
