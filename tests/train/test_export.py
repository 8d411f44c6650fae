"""Which version becomes the default by itself, and what is said of it."""

from pathlib import Path
from typing import Any

import pytest

from agentgym import TrainedAgent
from agentgym.errors import UsageError
from agentgym.train.export import keep
from agentgym.train.versions import Versions
from tests.evaluate.test_compare import measured
from tests.train.agents import make_agent, saved_agent


@pytest.mark.parametrize(
    ("before", "after", "more", "is_default", "reason"),
    [
        (0.5, 0.95, {}, True, "it solves more than coding@1 did: 95 % against 80 % of"),
        (0.5, 0.8, {}, False, "not better than coding@1 beyond chance: 80 % of"),
        (0.5, 0.803, {}, False, "than coding@1 beyond chance: 80.3 % against 80.0"),
        (0.5, 0.7, {}, False, "coding@1 solves more: 80 % against 70 % of held-out"),
        (
            0.9,
            0.9,
            {},
            False,
            "not better than before training beyond chance: 90 % of held-out tasks",
        ),
        (0.95, 0.9, {}, False, "training beyond chance: 90 % against 95 % of held-out"),
        (
            0.5,
            1.0,
            {"tasks": 119},
            False,
            "measured on 119 held-out tasks, coding@1 on",
        ),
        (0.5, 0.9, {"tasks": 400}, True, "it solves more than coding@1 did"),
    ],
)
def test_only_a_better_version_becomes_the_default_by_itself(
    tmp_path: Path,
    before: float,
    after: float,
    more: dict[str, Any],
    is_default: bool,
    reason: str,
) -> None:
    saved_agent(tmp_path / "old", "coding", 0.5, 0.8)
    saved = keep(make_agent(tmp_path / "new", before, after, **more), "coding")
    assert (saved.name, saved.is_default) == ("coding@2", is_default)
    assert reason in saved.reason
    assert TrainedAgent.load("coding").name == f"coding@{1 + is_default}"
    assert TrainedAgent.load("coding@2").metrics.pass_1.value == after


def test_one_that_lost_a_family_does_not_become_the_default(tmp_path: Path) -> None:
    old = measured(refund=[4] * 8, cancel=[0] * 12)
    new = measured(refund=[0] * 8, cancel=[4] * 12)
    for name, found in (("old", old), ("new", new)):
        agent = make_agent(tmp_path / name, 0.1, 0.5)
        agent.model_copy(update={"metrics": found}).write_card()
        saved = keep(TrainedAgent.load(tmp_path / name), "coding")
    assert not saved.is_default
    assert saved.reason == (
        "it lost families of tasks that coding@1 had: refund 100 % -> 0 %"
    )


def test_it_is_compared_with_the_default_and_not_with_the_newest(
    tmp_path: Path,
) -> None:
    for number, after in enumerate((0.8, 0.6)):
        keep(make_agent(tmp_path / str(number), 0.5, after), "coding")
    saved = keep(make_agent(tmp_path / "new", 0.5, 0.7), "coding")
    assert saved.reason.startswith("coding@1 solves more")
    TrainedAgent.load("coding@2").make_default()
    saved = keep(make_agent(tmp_path / "newer", 0.5, 0.7), "coding")
    assert saved.reason == "coding@2 was chosen with `agentgym agents use`"
    with Versions("coding").locked() as versions:
        versions.unpin()
    saved = keep(make_agent(tmp_path / "newest", 0.5, 0.7), "coding")
    assert saved.reason.startswith("it solves more than coding@2 did")


def test_a_first_version_that_is_not_better_is_saved_and_not_the_default(
    tmp_path: Path,
) -> None:
    saved = keep(make_agent(tmp_path / "a", 0.5, 0.4), "coding")
    assert (saved.name, saved.is_default) == ("coding@1", False)
    assert saved.reason == (
        "it is not better than before training beyond chance: 40 % against 50 % of "
        "held-out tasks"
    )
    with pytest.raises(UsageError, match="no default: no version was better .* use"):
        TrainedAgent.load("coding")
    assert TrainedAgent.load("coding@1").name == "coding@1"
    assert keep(make_agent(tmp_path / "b", 0.5, 0.6), "coding").is_default
