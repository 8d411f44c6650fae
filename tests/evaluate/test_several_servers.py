"""A whole evaluation over two model servers, one of which dies on the way."""

from typing import Any

import pytest
from aiohttp import web

from agentgym.core.config import TrainingConfig
from agentgym.core.task import Split
from agentgym.evaluate.evaluation import evaluate
from agentgym.evaluate.progress import Progress
from tests.evaluate.test_evaluation import calls
from tests.rollout.stub_server import StubServer

pytestmark = pytest.mark.timeout(300)
TASKS, SAMPLES = 8, 3


async def look_once(request: web.Request, body: dict[str, Any]) -> web.Response:
    """List the files, then answer."""
    if any(message["role"] == "tool" for message in body["messages"]):
        return calls(text="Done.")
    return calls(("list_files", {"path": "."}))


class Dying(Progress):
    """Ends a server once a third of the rollouts have ended."""

    def __init__(self, server: StubServer) -> None:
        self._server = server
        self._ended = 0

    def rollout_done(self) -> None:
        self._ended += 1
        if self._ended == TASKS * SAMPLES // 3:
            self._server.stop()


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
    assert found.endpoint == f"{one.endpoint}, {two.endpoint}"
