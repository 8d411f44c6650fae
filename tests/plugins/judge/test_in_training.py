"""A judge in training: it ranks where a check says nothing, and never a zero.

Slow: each test trains.
"""

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from agentgym import TrainingConfig
from agentgym.engines.scripted import Reply
from agentgym.errors import TrainingFailedError, UsageError
from agentgym.plugins.judge import group_judge
from agentgym.plugins.view.report import write_reports
from agentgym.scenarios.base import Scenario
from agentgym.train import loop
from agentgym.train import plan as plan_module
from agentgym.train.result import TrainingResult
from agentgym.train.run_folder import RunFolder
from agentgym.train.trainer import Trainer
from tests.plugins.judge.judges import by_length, says, scoring
from tests.rollout.stub_server import StubServer
from tests.scripted_engine import ScriptedEngine
from tests.train.test_loop import trainer

REPLIES = ("Done.", "It is done, as you asked.")
PRICES = {"judge.price_in": 10.0, "judge.price_out": 100.0}
ALL_SOLVED = 8


@pytest.fixture(autouse=True)
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a script answer, in turn short and long; all solves every task."""
    monkeypatch.setenv("AGENTGYM_HOME", str(tmp_path / "home"))
    replies = itertools.cycle(REPLIES)

    def create(config: TrainingConfig) -> ScriptedEngine:
        return ScriptedEngine(lambda _: Reply(next(replies)))

    monkeypatch.setattr(loop, "create_engine", create)


def judged(folder: Path, server: StubServer, **settings: Any) -> Trainer:
    given: dict[str, Any] = {
        "episodes": 8,
        "group_size": 4,
        "tasks_per_step": 1,
        "eval_every": 9,
    }
    given |= {"judge": f"{server.endpoint}#m", "workers": 1, **settings}
    made = trainer(folder, ALL_SOLVED, **given)
    scenario = folder / "decided" / "scenario.py"
    text = scenario.read_text().replace('split != "train" and ', "")
    scenario.write_text(text.replace("number < 8", "True"))
    return made


def credit_of(result: TrainingResult) -> list[dict[str, Any]]:
    lines = (result.artifacts.run / "credit.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.slow
def test_attempts_that_all_succeed_are_trained_by_their_ranks(tmp_path: Path) -> None:
    with StubServer(scoring(by_length)) as server:
        result = judged(tmp_path, server, **PRICES).train()
    record = result.ledger.judging
    assert record is not None
    assert (record.groups, record.judged, record.requests) == (2, 2, 2)
    assert record.cost == pytest.approx(0.04)
    assert result.ledger.adds_up
    assert result.ledger.trained == 8
    lines = credit_of(result)
    scores = [line["judge"]["score"] for line in lines]
    advantages = [line["calls"][0]["advantage"] for line in lines]
    assert set(scores) == {0.95, 0.75}
    assert [a > 0 for a in advantages] == [score == 0.95 for score in scores]

    write_reports(result)
    report = (result.artifacts.run / "report.md").read_text()
    assert "2 of 2 groups of attempts were judged" in report
    assert "$0.04" in report
    assert TrainingResult.load(result.artifacts.run) == result


@pytest.mark.slow
@pytest.mark.parametrize("why", [group_judge.TIMEOUT, group_judge.CAP])
def test_a_judge_that_fails_trains_nothing_and_is_in_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """All attempts earn the same without it, so that none has a signal: not a zero."""
    monkeypatch.setattr(group_judge, "_TIMEOUT_S", 0.3)

    async def answer(request: web.Request, body: dict[str, Any]) -> web.Response:
        if why == group_judge.TIMEOUT:
            await asyncio.sleep(30)
        return says("I cannot say.")

    settings = {**PRICES, "judge.max_cost": 1e-6} if why == group_judge.CAP else {}
    with (
        StubServer(answer) as server,
        pytest.raises(TrainingFailedError, match="no reward variance in its group"),
    ):
        judged(tmp_path, server, **settings).train()
    kept = RunFolder(tmp_path / "runs" / "run").load_state()
    assert kept is not None
    record = kept[0].ledger.judging
    assert record is not None
    assert record.kept == {why: 2}
    lines = (tmp_path / "runs" / "run" / "credit.jsonl").read_text().splitlines()
    reasons_of_calls = {json.loads(line)["calls"][0]["reason"] for line in lines}
    assert reasons_of_calls == {"no reward variance in its group"}


def test_the_plan_has_the_judges_price(tmp_path: Path) -> None:
    with StubServer() as server:
        plan = judged(tmp_path, server, **PRICES, **{"judge.max_cost": 1.5}).plan()
        assert server.bodies == []
    assert "at most 2 requests of at most 15," in plan.judge
    assert "; at most $1." in plan.judge
    assert plan.judge.endswith("judging ends at $1.50")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"judge": "nano"}, "not a model that a server answers for"),
        ({"judge": None, "judge.max_cost": 1.0}, "judge.max_cost without a judge"),
        ({"judge.max_cost": 1.0}, "needs the price"),
        ({"deterministic": True}, "cannot be deterministic"),
        ({"judge.rubric": "none.md"}, "judge.rubric = 'none.md' cannot be read"),
        ({"judge": "openai:gpt-x"}, "OPENAI_API_KEY"),
    ],
)
def test_settings_of_a_judge_that_cannot_work_are_refused_in_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], why: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with StubServer() as server, pytest.raises(UsageError, match=why):
        judged(tmp_path, server, **settings).plan()


def test_a_rubric_is_kept_as_text(tmp_path: Path) -> None:
    rubric = tmp_path / "rubric.md"
    rubric.write_text("Short answers are better.")
    with StubServer() as server:
        plan = judged(tmp_path, server, **{"judge.rubric": rubric}).plan()
    assert plan.config.model_dump()["judge"]["rubric"] == "Short answers are better.\n"


@pytest.mark.slow
def test_a_tasks_file_without_a_check_is_trained_by_the_judge_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No early stop ends it, although every attempt succeeds."""
    monkeypatch.setattr(plan_module, "require_sound", lambda _: None)  # 10 s
    tasks = tmp_path / "rooms.jsonl"
    tool = {"name": "book", "description": "Books.", "parameters": {"type": "object"}}
    lines = [{"instruction": f"Room {n}?", "tools": [tool]} for n in range(16)]
    tasks.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with StubServer(scoring(by_length)) as server:
        config = TrainingConfig.create(
            scenario=f"{tasks}?check=none",
            framework="native",
            judge=f"{server.endpoint}#m",
            episodes=8,
            group_size=4,
            tasks_per_step=1,
            eval_every=1,
            eval_tasks=2,
            test_tasks=2,
            eval_samples=1,
            workers=1,
            forgetting_questions=0,
            tracker="none",
            output=tmp_path / "runs",
        )
        result = Trainer(config, progress=False).train()
    assert (result.stopped, result.steps) == (loop.SPENT, 2)
    assert result.ledger.judging is not None
    assert result.ledger.judging.judged == 2
    assert result.ledger.trained == 8


def test_a_scenario_without_a_check_needs_a_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Scenario, "has_check", False)
    with pytest.raises(UsageError, match=r"has_check is False.*--judge"):
        trainer(tmp_path, ALL_SOLVED).plan()
