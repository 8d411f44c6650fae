"""UserSettings: the group of settings ``user``, of simulated users."""

from typing import Any, ClassVar

from agentgym.core.panels import TASKS
from agentgym.core.settings import SettingsGroup, setting
from agentgym.scenarios.base import Scenario


class UserSettings(SettingsGroup):
    """The model that plays the user in scenarios whose users are models."""

    name: ClassVar = "user"
    main: ClassVar = "model"

    model: str | None = setting(
        None,
        "The model that plays the user, in scenarios that need one, as tau2: "
        "PROVIDER:MODEL or an address. It is sent the conversation.",
        TASKS,
        option="--user-model",
        metavar="PROVIDER:MODEL|ADDRESS",
    )


def set_user_model(
    scenario: Scenario, settings: dict[str, Any], *, trains: bool
) -> None:
    """Give the scenario of τ² the model that plays its users."""
    from agentgym.plugins.bench.tau2 import Tau2Scenario

    if isinstance(scenario, Tau2Scenario):
        scenario.user_model = settings["model"]
