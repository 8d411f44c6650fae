"""Whole evaluations: over two servers of which one dies, and with kept answers."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from agentgym.core.config import TrainingConfig
from agentgym.core.task import Split
from agentgym.errors import UsageError
from agentgym.evaluate import events
from agentgym.evaluate.evaluation import evaluate
from agentgym.evaluate.result import Evaluation
from tests.evaluate.test_evaluation import calls
from tests.rollout.stub_server import StubServer

pytestmark = pytest.mark.timeout(300)
TASKS, SAMPLES = 8, 3


async def look_once(request: web.Request, body: dict[str, Any]) -> web.Response:
    """List the files, then answer."""
    if any(message["role"] == "tool" for message in body["messages"]):
        return calls(text="Done.")
    return calls(("list_files", {"path": "."}))


class Dying:
    """Ends a server once a third of the rollouts have ended."""

    def __init__(self, server: StubServer) -> None:
        self._server = server
        self._ended = 0

    def __call__(self, event: events.Event) -> None:
        self._ended += isinstance(event, events.RolloutDone)
        if self._ended == TASKS * SAMPLES // 3:
            self._server.stop()


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["langchain", "native"])
def test_all_rollouts_end_well_though_a_server_dies(framework: str) -> None:
    with StubServer(look_once) as one, StubServer(look_once) as two:
        config = TrainingConfig.create(
            scenario="coding",
            framework=framework,
            model=f"{one.endpoint},{two.endpoint}#model-x",
            test_tasks=TASKS,
            eval_samples=SAMPLES,
            concurrency=4,
        )
        found = evaluate(config, Split.TEST, Dying(one), subject="x", baselines=False)
    rollouts = TASKS * SAMPLES
    assert (found.metrics.rollouts, found.metrics.dropped) == (rollouts, 0)
    assert [
        attempt.reason for attempt in found.attempts if attempt.reward is None
    ] == []
    # Each call is counted once, by whomever it was answered and however often tried.
    assert found.metrics.model_calls.value == 2
    assert found.metrics.prompt_tokens.value == 200
    assert sum(found.calls.values()) == rollouts
    assert one.bodies
    assert len(two.bodies) > rollouts
    # What the dead one was asked last may have been asked again, and nothing else.
    assert 0 <= len(one.bodies) + len(two.bodies) - 2 * rollouts <= 4
    [note] = found.notes
    assert f"{one.endpoint} gets no calls: it failed (" in note
    assert found.endpoint == f"{one.endpoint}, {two.endpoint}"


def measured(server: StubServer, answers: Path, **settings: Any) -> Evaluation:
    config = TrainingConfig.create(
        **{
            "scenario": "coding",
            "framework": "langchain",
            "model": f"{server.endpoint}#model-x",
            "test_tasks": TASKS,
            "eval_samples": 2,
            "eval_temperature": 0.0,
            **settings,
        }
    )
    given: dict[str, Any] = {"subject": "x", "baselines": False}
    given["cache_requests"] = answers
    return evaluate(config, Split.TEST, events.silent, **given)


@pytest.mark.slow
def test_an_evaluation_again_asks_the_server_nothing(tmp_path: Path) -> None:
    answers = tmp_path / "answers"
    with StubServer(look_once) as server:
        first = measured(server, answers)
        asked = len(server.bodies)
        again = measured(server, answers)
        assert len(server.bodies) == asked
    made = TASKS * 2 * 2
    assert {body["temperature"] for body in server.bodies} == {0.0}
    assert asked == made - first.cached
    assert again.cached == made
    assert f"{made} of {made} requests to the model were answered" in again.notes[0]
    for name in ("pass_1", "model_calls", "prompt_tokens", "tool_reliability"):
        assert first.metrics[name] == again.metrics[name]
    assert first.calls == again.calls
    assert Evaluation.model_validate_json(again.model_dump_json()) == again


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"eval_temperature": 0.5}, "eval_temperature is 0.5. Give --temperature 0"),
        ({"model": "nano"}, "is for a model that servers answer for"),
    ],
)
def test_a_cache_that_cannot_be_meant_is_refused(
    tmp_path: Path, settings: dict[str, Any], told: str
) -> None:
    with StubServer() as server, pytest.raises(UsageError, match=told):
        measured(server, tmp_path / "answers", **{"framework": "native", **settings})
    assert not (tmp_path / "answers").exists()
