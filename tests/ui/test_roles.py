"""What people see of a team: each role, and nothing of this for an agent alone."""

import pytest

from agentgym.core.ledger import ROLE_NOT_TRAINED, TRAINED, Bucket, Ledger
from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import ModelCall, RequestedCall, ToolCall, Trajectory
from agentgym.evaluate.metrics import Metrics
from agentgym.plugins.doctor.run import Evidence
from agentgym.plugins.doctor.screens import findings_view
from agentgym.plugins.view.report import render_report
from agentgym.train.result import TrainingResult
from agentgym.ui.evaluation import evaluation_view
from agentgym.ui.reports import render_evaluation
from agentgym.ui.run import result_view
from tests.ui import made_up
from tests.ui.test_tables import RUN, shown

LONG = "Senior Vice President of Additions and Other Sums"


def ledger(*roles: str) -> Ledger:
    """Return a ledger of 100 trained and 20 masked calls of each role."""
    found = Ledger()
    for role in roles:
        found.add([TRAINED] * 100, roles=[role] * 100)
        found.add([Bucket("masked", ROLE_NOT_TRAINED)] * 20, roles=[role] * 20)
    return found


def measured(*roles: str, reliable: bool) -> Metrics:
    """Return what 20 tasks gave, in each of which every role calls a tool once."""
    outcome = ToolOutcome.OK if reliable else ToolOutcome.RAISED
    steps: list[ModelCall | ToolCall] = []
    for role in roles:
        asked = RequestedCall(id="1", name="add", arguments="{}")
        ids = {"prompt_ids": [0] * 9, "response_ids": [0] * 5}
        steps += [
            ModelCall(agent=role, tool_calls=[asked], **ids),
            ToolCall(id="1", name="add", arguments={}, outcome=outcome),
        ]
    return Metrics.of(
        [
            Trajectory(
                rollout_id=f"r{number}",
                scenario="s",
                task_id=f"t{number}",
                steps=steps,
                reward=1.0,
                success=True,
            )
            for number in range(20)
        ],
        k=1,
    )


def result(*roles: str) -> TrainingResult:
    changes = {
        "ledger": ledger(*roles),
        "baseline": measured(*roles, reliable=False),
        "metrics": measured(*roles, reliable=True),
        "breakdown": {},
    }
    return made_up.result(**changes)


@pytest.mark.parametrize("width", [60, 120])
def test_each_role_of_a_team_is_shown(width: int) -> None:
    text = shown(result_view(result("planner", LONG).shown, RUN), width)
    assert max(map(len, text.splitlines())) <= width
    lines = {
        line.split()[0]: line.split() for line in text.splitlines() if line.split()
    }
    assert lines["all"] == ["all", "240", "200", "40", "0"]
    rows = [line.split() for line in text.splitlines() if "planner" in line.split()]
    assert rows[0] == ["planner", "120", "100", "20", "0"]
    changes = "- → - 0 → 100 % 1.00 → 1.00 5.00 → 5.00 0 → 0 %"
    reached = "- 100 % 1.00 5.00 0 %"
    assert " ".join(rows[1]) == f"planner {reached if width < 76 else changes}"


def test_an_agent_alone_has_no_roles() -> None:
    for found in (result("agent"), result("planner")):
        text = shown(result_view(found.shown, RUN), 80)
        assert "each role" not in text
        assert "Each role" not in text
        assert "ach role" not in render_report(found)


def test_the_report_and_the_doctor_tell_of_each_role() -> None:
    found = result("planner", "worker")
    report = render_report(found)
    assert "| worker | 120 | 100 | 20 | 0 |" in report
    assert "| worker | - → - | 0 → 100 % |" in report
    evidence = Evidence(
        "done", ledger=found.ledger, baseline=found.baseline, validation=found.metrics
    )
    text = shown(findings_view(evidence, [], "done"), 80)
    assert "worker" in text
    assert "0 → 100 %" in text


def test_an_evaluation_tells_of_each_role() -> None:
    team = measured("planner", "worker", reliable=True)
    found = made_up.evaluation(0.5).model_copy(update={"metrics": team})
    assert "| worker | - | 100 % | 1.00 | 5.00 | 0 % |" in render_evaluation(found)
    text = shown(evaluation_view(found), 80)
    [line] = [line for line in text.splitlines() if "worker" in line.split()]
    assert line.split() == ["worker", "-", "100", "%", "1.00", "5.00", "0", "%"]
    assert "Each role" not in shown(evaluation_view(made_up.evaluation(0.5)), 80)
