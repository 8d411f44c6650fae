"""The loans desk of examples/: its file is sound, and every plan can be imitated."""

import sys
from pathlib import Path

import pytest

from agentgym import Scenario
from agentgym.core.task import Split
from agentgym.evaluate.check import check_scenario
from agentgym.train.warm_start import tasks_to_imitate

FOLDER = Path(__file__).parents[2] / "examples" / "loans_desk"


@pytest.mark.slow
def test_the_tasks_file_is_sound_and_tells_every_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(FOLDER)
    monkeypatch.setattr(sys, "path", [*sys.path])
    scenario = Scenario.from_tools("desk:TOOLS", tasks="loans.jsonl")

    found = check_scenario(scenario.reference, seed=0)

    assert not [each.why for each in found if each.status == "fail"]
    training = scenario.tasks(Split.TRAIN, 0, 100)
    assert len(tasks_to_imitate(scenario, 0, 100)) == len(training) >= 15
    sys.modules.pop("desk", None)
