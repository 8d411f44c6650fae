"""JudgeSettings: the group of settings ``judge``."""

from typing import ClassVar

from agentgym.core.panels import JUDGE
from agentgym.core.settings import MANY, PathText, SettingsGroup, setting


class JudgeSettings(SettingsGroup):
    """The settings of a judge: a model that ranks the successful attempts at a task."""

    name: ClassVar = "judge"
    main: ClassVar = "model"

    model: str | None = setting(
        None,
        "A model that ranks attempts at one task, within those that the check accepts. "
        "It is sent the attempts.",
        JUDGE,
        option="--judge",
        metavar="PROVIDER:MODEL|ADDRESS",
    )
    rubric: PathText = setting(
        "",
        "File of criteria for the judge, in plain sentences, or their text; else "
        "built-in ones.",
        JUDGE,
        option="--judge-rubric",
        metavar="FILE",
    )
    weight: float = setting(
        0.5,
        "Most difference in reward that the judge's ranking makes between two "
        "attempts.",
        JUDGE,
        gt=0,
        le=MANY,
    )
    price_in: float | None = setting(
        None,
        "$ per million tokens that the judge reads.",
        JUDGE,
        option="--judge-price-in",
        metavar="$",
        ge=0,
        le=MANY,
    )
    price_out: float | None = setting(
        None,
        "$ per million tokens that the judge writes.",
        JUDGE,
        option="--judge-price-out",
        metavar="$",
        ge=0,
        le=MANY,
    )
    max_cost: float | None = setting(
        None,
        "Most $ of the judge, after which the run goes on without it.",
        JUDGE,
        option="--judge-max-cost",
        metavar="$",
        may_change=True,
        gt=0,
        le=MANY,
    )
