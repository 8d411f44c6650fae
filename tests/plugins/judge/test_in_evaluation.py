"""A judge in an evaluation: how far it agrees with the check, before it is paid for.

Slow: agents run in worker processes.
"""

import itertools
import re
from typing import Any

import pytest
from aiohttp import web

from agentgym.core.config import TrainingConfig
from agentgym.core.task import Split
from agentgym.evaluate.evaluation import evaluate
from agentgym.evaluate.events import silent
from agentgym.evaluate.result import Evaluation
from tests.evaluate.test_evaluation import calls
from tests.plugins.judge.judges import scoring
from tests.rollout.stub_server import StubServer

pytestmark = pytest.mark.slow

SCENARIO = '''
from agentgym import Environment, Reward, Scenario, Task
from agentgym.core.tools import tool_specs


class Rooms(Scenario):
    """Success is a polite answer."""

    name = "rooms"
    description = "Answers."
    difficulty = "beginner"
    estimated_time = "seconds"

    def system_prompt(self):
        return "Be polite."

    def tools(self):
        return []

    def tasks(self, split, seed, count):
        return [
            Task(id=f"{split}-{n}", split=split, seed=seed, family="f", level=1,
                 instruction=f"Room {n}?")
            for n in range(count)
        ]

    def create_environment(self, task):
        return Environment()

    def calculate_reward(self, task, environment, trajectory):
        polite = "please" in (trajectory.answer or "")
        return Reward(float(polite), polite)
'''


def test_agreement_with_the_check_and_the_price_are_reported(tmp_path: Any) -> None:
    """The check accepts each other attempt; the judge prefers it in two of three."""
    answers = itertools.cycle(["Come in, please.", "Go away."])

    async def model(request: web.Request, body: dict[str, Any]) -> web.Response:
        return calls(text=next(answers))

    def score(entries: list[dict[str, Any]]) -> float:
        return float("please" in entries[-1]["text"])

    async def judge(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        room = re.search(r"Room (\d)", body["messages"][1]["content"])
        assert room is not None
        likes = room[1] != "0"
        each = scoring(lambda found: score(found) if likes else 1 - score(found))
        return await each(request, body)

    pack = tmp_path / "rooms"
    pack.mkdir()
    (pack / "scenario.py").write_text(SCENARIO)
    with StubServer(model) as asked, StubServer(judge) as judging:
        config = TrainingConfig.create(
            scenario=str(pack),
            framework="native",
            model=f"{asked.endpoint}#m",
            judge=f"{judging.endpoint}#j",
            **{"judge.price_in": 10.0, "judge.price_out": 100.0},
            test_tasks=3,
            eval_samples=2,
            workers=1,
            concurrency=1,
        )
        found = evaluate(config, Split.TEST, silent, subject="x", baselines=False)
    record = found.judging
    assert record is not None
    assert (record.groups, record.judged, record.pairs) == (3, 3, 3)
    assert record.agreement == pytest.approx(2 / 3)
    assert record.cost == pytest.approx(0.06)
    assert "agrees with the check in 67 % of 3 pairs" in found.notes[-1]
    assert found.metrics.reward.value == 0.5, "it changes no reward"
    assert Evaluation.model_validate_json(found.model_dump_json()) == found
