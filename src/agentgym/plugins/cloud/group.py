"""RentSettings: the group of settings ``rent``."""

from typing import ClassVar

from agentgym.core.panels import MACHINE
from agentgym.core.settings import MANY, SettingsGroup, setting


class RentSettings(SettingsGroup):
    """The settings of rented machines."""

    name: ClassVar = "rent"

    spot: bool = setting(
        False,
        "Rent a machine that may be taken away, for less. The run then goes on on "
        "another one.",
        MACHINE,
        option="--spot/--no-spot",
        may_change=True,
    )
    max_hourly: float | None = setting(
        None,
        "A rented machine's most $ an hour.",
        MACHINE,
        option="--max-hourly",
        metavar="$",
        may_change=True,
        gt=0,
        le=MANY,
    )
    max_cost: float | None = setting(
        None,
        "A rented machine's most $ in all; then the run ends.",
        MACHINE,
        option="--max-cost",
        metavar="$",
        may_change=True,
        gt=0,
        le=MANY,
    )
