"""Training by step and by family, level or role, as the viewer's server answers."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentgym.rollout.store.store import Store
from agentgym.train.run_folder import CREDIT_FILE, RunFolder
from tests.plugins.view.conftest import Ask
from tests.plugins.view.made_run import add_rollout, fill_team, make_run, reward, tasks

TRAINED: dict[str, Any] = {"bucket": "trained", "reason": "", "advantage": 0.5}
PLANNED = {**TRAINED, "spans": [[0, 2]], "gaps": [0.1, -0.3]}
NEAR = {**TRAINED, "spans": [[0, 4]], "gaps": []}
MASKED = {"bucket": "masked", "reason": "no trainable component"}
FIRST = {"rollout": "s00001-t000-00", "calls": [PLANNED, NEAR]}


@pytest.fixture
def team(tmp_path: Path) -> RunFolder:
    """The run of a team, two steps long."""
    made = make_run(tmp_path / "runs" / "team", steps=2)
    with Store(made.path / "rollouts.db") as store:
        fill_team(store)
    return made


def lines(ask: Ask, by: str, name: str, run: str = "team") -> dict[Any, Any]:
    """Return a line's values by name of the family or role, and step."""
    answer = ask(f"runs/{run}/curves", by=by).json()
    assert not answer["is_loading"]
    return {(row["name"], row["step"]): row[name] for row in answer["rows"]}


def test_the_gap_is_a_mean_over_trained_tokens(ask: Ask, team: RunFolder) -> None:
    unmeasured = {**TRAINED, "spans": [[0, 3]]}
    second = {"rollout": "s00002-t000-00", "calls": [PLANNED, MASKED, unmeasured]}
    team.append_credit([FIRST, second])
    assert lines(ask, "roles", "gap") == {
        ("coder", 1): 0,
        ("coder", 2): None,
        ("planner", 1): pytest.approx(0.2),
        ("planner", 2): pytest.approx(0.2),
    }
    assert [*lines(ask, "family", "gap").values()] == pytest.approx([0.4 / 6, 0.2])
    assert [*lines(ask, "level", "gap").values()] == pytest.approx([0.4 / 6, 0.2])


def test_entropy_and_kl_are_means_over_the_tokens_that_have_them(
    ask: Ask, team: RunFolder
) -> None:
    planned = {**PLANNED, "entropy": 0.5, "kl": 0.01}
    near = {**NEAR, "entropy": 2.0}
    second = {**TRAINED, "spans": [[0, 1]], "kl": 0.03}
    team.append_credit(
        [
            {"rollout": "s00001-t000-00", "calls": [planned, near]},
            {"rollout": "s00002-t000-00", "calls": [planned, MASKED, second]},
        ]
    )
    assert lines(ask, "roles", "entropy") == {
        ("coder", 1): 2.0,
        ("coder", 2): None,
        ("planner", 1): 0.5,
        ("planner", 2): 0.5,
    }
    assert lines(ask, "roles", "kl") == {
        ("coder", 1): None,
        ("coder", 2): pytest.approx(0.03),
        ("planner", 1): pytest.approx(0.01),
        ("planner", 2): pytest.approx(0.01),
    }
    assert [*lines(ask, "family", "entropy").values()] == pytest.approx([1.5, 0.5])
    assert [*lines(ask, "family", "kl").values()] == pytest.approx([0.01, 0.05 / 3])


def test_the_gap_is_read_as_the_run_goes_on(ask: Ask, team: RunFolder) -> None:
    def gap() -> Any:
        return lines(ask, "roles", "gap")["planner", 1]

    assert gap() is None
    far = {"rollout": "s00001-t000-00", "calls": [{**PLANNED, "gaps": [2, 2]}, NEAR]}
    team.append_credit([far])
    assert gap() == 2
    text = json.dumps(FIRST) + "\n"  # the step was repeated: the later line counts
    with open(team.path / CREDIT_FILE, "a") as file:
        file.write(text[:50])
        file.flush()
        assert gap() == 2
        file.write(text[50:])
    assert gap() == pytest.approx(0.2)
    with open(team.path / CREDIT_FILE, "a") as file:
        file.write(text[:50] + "\n[]\n")  # cut by a kill
    team.append_credit([far])
    assert gap() == 2


def test_a_gap_that_is_recorded_before_the_rollouts_end_is_kept(
    ask: Ask, team: RunFolder
) -> None:
    team.append_credit([{"rollout": "s00003-t000-00", "calls": [PLANNED]}])
    assert 3 not in [step for _, step in lines(ask, "family", "gap")]
    with Store(team.path / "rollouts.db") as store:
        [task, *_] = tasks()
        add_rollout(
            *(store, "s00003-t000-00", task, [], reward(True)), step=3, is_train=True
        )
    found = lines(ask, "family", "gap")
    assert [gap for (_, step), gap in found.items() if step == 3] == [
        pytest.approx(0.2)
    ]


def test_curves_by_role_count_a_rollout_for_each_role(
    ask: Ask, team: RunFolder
) -> None:
    rows = ask("runs/team/curves", by="roles").json()["rows"]
    found = {(row["name"], row["step"]): row for row in rows}
    assert set(found) == {(n, step) for n in ("coder", "planner") for step in (1, 2)}
    assert found["coder", 2]["model_calls"] == 2
    assert found["planner", 2]["model_calls"] == 1
    assert (found["coder", 1]["success"], found["coder", 2]["success"]) == (0, 1)
    [first, second] = ask("runs/team/curves", by="family").json()["rows"]
    assert (first["model_calls"], second["model_calls"]) == (2, 3)
    assert first["tool_reliability"] == 1
    assert first["right_arguments"] == 0.5
    assert ask("runs/team/curves", by="colour").status_code == 400
