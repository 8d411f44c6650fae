"""resumed_config: change settings when a run is resumed."""

from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.core.settings import about
from agentgym.errors import UsageError


def may_change() -> list[str]:
    """Return the names of the settings that may change when a run is resumed."""
    fields = TrainingConfig.fields()
    return [name for name in fields if about(fields[name], "may_change")]


def resumed_config(before: TrainingConfig, changes: dict[str, Any]) -> TrainingConfig:
    """Return a run's settings with the changes that the user gave when resuming it."""
    given = {name: value for name, value in changes.items() if value is not None}
    if refused := refused_changes(given):
        raise UsageError(
            f"A resumed run keeps its own settings; leave out: {', '.join(refused)}. "
            f"These may change: {', '.join(may_change())}."
        )
    return before.replaced(**given)


def refused_changes(changes: dict[str, Any]) -> list[str]:
    """Return the names of the settings in ``changes`` that must stay the same."""
    allowed, groups = may_change(), TrainingConfig.groups()
    refused = []
    for name, value in TrainingConfig.flat(changes).items():
        group, _, key = name.partition(".")
        further = groups[group].further if group in groups else ""
        if further and key == further:
            keys = list(value or {})
        elif further and name not in TrainingConfig.fields():
            keys = [key]  # of the library itself
        else:
            refused += [name] * (name not in allowed)
            continue
        fixed = [k for k in keys if not k.startswith(groups[group].may_change)]
        refused += [f"{group}.{k}" for k in fixed]
    return refused
