"""RolloutSettings: the group of settings ``rollouts``."""

from typing import ClassVar, Literal

from agentgym.core.panels import LEARNING
from agentgym.core.settings import SettingsGroup, setting


class RolloutSettings(SettingsGroup):
    """Settings of training rollouts: whole episodes, or single calls on the way."""

    name: ClassVar = "rollouts"
    main: ClassVar = "kind"

    kind: Literal["auto", "calls", "episodes"] = setting(
        "auto",
        "The kind of training rollouts. calls: the task's known calls are played up to "
        "a place on the way, the policy answers once there, and the answer is judged "
        "at once. episodes: the policy makes every call. auto is calls for a model "
        "that is not small and tasks with known calls, until nine in ten answers are "
        "right.",
        LEARNING,
    )
