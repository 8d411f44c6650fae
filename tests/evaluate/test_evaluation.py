"""Evaluations through real agent loops, against a scripted provider."""

import json
from collections import Counter
from typing import Any

import pytest
from aiohttp import web

from agentgym.cli.main import main
from agentgym.core.config import TrainingConfig
from agentgym.core.prices import Prices
from agentgym.core.task import Split
from agentgym.errors import ProviderError
from agentgym.evaluate.call_classes import NO_CALL, NOTHING, CallClass
from agentgym.evaluate.compare import compare
from agentgym.evaluate.evaluation import evaluate
from agentgym.evaluate.events import silent
from agentgym.evaluate.metrics import METRICS
from agentgym.evaluate.result import Evaluation
from agentgym.packs.coding.scenario import CodingScenario
from tests.rollout.stub_server import StubServer

pytestmark = pytest.mark.timeout(300)
TASKS = CodingScenario().tasks(Split.VALIDATION, 0, 2)


def calls(*made: tuple[str, Any], text: str = "") -> web.Response:
    """Return a completion with tool calls, arguments as objects or raw text."""
    requested = [
        {
            "id": f"call-{number}",
            "type": "function",
            "function": {
                "name": name,
                "arguments": args if isinstance(args, str) else json.dumps(args),
            },
        }
        for number, (name, args) in enumerate(made)
    ]
    message = {"role": "assistant", "content": text, "tool_calls": requested}
    if not made:
        del message["tool_calls"]
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    return web.json_response(
        {"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage}
    )


def measure(server: StubServer, framework: str, **options: Any) -> Evaluation:
    config = TrainingConfig.create(
        scenario="coding",
        framework=framework,
        model=f"{server.endpoint}#model-x",
        test_tasks=len(TASKS),
        eval_samples=2,
    )
    given: dict[str, Any] = {"subject": "x", "baselines": False, **options}
    return evaluate(config, Split.VALIDATION, silent, **given)


async def every_error(request: web.Request, body: dict[str, Any]) -> web.Response:
    """Make each kind of error once, in three turns."""
    said = next(m["content"] for m in body["messages"] if m["role"] == "user")
    task = next(task for task in TASKS if task.instruction == said)
    path = next(p for p in task.initial_state["files"] if not p.startswith("tests/"))
    answers = sum(m["role"] == "assistant" for m in body["messages"])
    if answers == 0:
        return calls(
            ("fly", {}),
            ("read_file", {}),
            ("read_file", {"path": 3}),
            ("list_files", {"path": ".", "deep": True}),
            ("edit_file", {"path": path, "old": "a", "new": "b"}),
            ("lint", {"path": "no/such/file.py"}),
        )
    if answers == 1:
        return calls(("list_files", {}), ("list_files", {"path": "."}))
    return calls(("read_file", '{"path": '))


@pytest.mark.slow
@pytest.mark.parametrize(
    "framework", ["native", pytest.param("langchain", marks=pytest.mark.slow)]
)
def test_every_kind_of_error_is_told_apart(framework: str) -> None:
    with StubServer(every_error) as server:
        found = measure(server, framework, prices=Prices(prompt=1.0, response=4.0))
    made = Counter(found.calls)
    rollouts = found.metrics.rollouts
    assert rollouts == 4
    for kind in ("invented_tool", "missing", "extra", "wrong_type", "rule_broken"):
        assert made[CallClass(kind)] == rollouts, kind
    assert made[CallClass.RAISED] + made[CallClass.WRONG_VALUE] >= rollouts
    assert made[CallClass.REPEATED] >= rollouts
    assert made[CallClass.MALFORMED] >= rollouts
    # Every call is in one class and in one cell, and is counted once.
    reliable = found.metrics.by_task[0].sums["tool_reliability"]
    total = sum(found.calls.values())
    assert total == sum(t.sums["tool_reliability"][1] for t in found.metrics.by_task)
    assert reliable[0] < reliable[1]
    assert found.confusion is not None
    rows = found.confusion.counts
    missed = sum(row.get(NO_CALL, 0) for row in rows.values())
    assert sum(sum(row.values()) for row in rows.values()) == total + missed
    plans = sum(len(task.goal["plan"]) for task in TASKS)
    needed = sum(sum(row.values()) for tool, row in rows.items() if tool != NOTHING)
    assert needed == found.samples * plans
    by_attempt: Counter[CallClass] = Counter()
    for attempt in found.attempts:
        by_attempt.update(attempt.calls)
    assert by_attempt == made
    # No ids, so the provider's own counts are the tokens.
    turns = found.metrics.model_calls.value
    assert found.metrics.prompt_tokens.value == pytest.approx(100 * turns)
    assert found.metrics.cost.value == pytest.approx((100 + 4 * 10) * turns / 1e6)
    assert found.metrics.pass_1.value == 0.0
    assert found.endpoint == server.endpoint
    assert Evaluation.model_validate_json(found.model_dump_json()) == found
    assert "model-x" in found.settings["model"]


async def planned(request: web.Request, body: dict[str, Any]) -> web.Response:
    """Make the calls of the plan, one a turn, then answer."""
    said = next(m["content"] for m in body["messages"] if m["role"] == "user")
    task = next(task for task in TASKS if task.instruction == said)
    answers = sum(m["role"] == "assistant" for m in body["messages"])
    plan = task.goal["plan"]
    if answers == len(plan):
        return calls(text="Done.")
    return calls((plan[answers]["tool"], plan[answers]["args"]))


@pytest.mark.slow
def test_a_perfect_agent_beside_the_baselines() -> None:
    with StubServer(planned) as server:
        found = measure(server, "native", baselines=True)
        again = measure(server, "native")
    assert found.metrics.pass_1.value == found.metrics.pass_k.value == 1.0
    assert set(found.calls) == {CallClass.RIGHT}
    assert found.confusion is not None
    for tool, row in found.confusion.counts.items():
        assert set(row) <= {tool}
    assert found.metrics.cost.n == 0  # nobody said what it costs
    idle = found.baselines["do-nothing"]
    assert (idle.pass_1.value, idle.tool_reliability.n) == (0.0, 0)
    assert found.baselines["call-everything"].pass_1.value == 0.0
    compared = compare(found.metrics, again.metrics)
    assert compared.p_value == 1.0
    for name in METRICS:
        change = compared.differences[name]
        if name != "seconds" and change.n:
            assert change.low <= change.value == 0.0 <= change.high


@pytest.mark.slow
def test_a_refused_key_ends_the_evaluation_at_once(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def refuse(request: web.Request, body: dict[str, Any]) -> web.Response:
        return web.json_response({"error": {"message": "who are you?"}}, status=401)

    with StubServer(refuse) as server:
        with pytest.raises(ProviderError, match="who are you"):
            measure(server, "native")
        asked = len(server.bodies)
        model = f"{server.endpoint}#m"
        words = ["--model", model, "--split", "validation", "--framework", "native"]
        code = main(["eval", "coding", *words, "--tasks", "50"])
    assert asked <= 2 * len(TASKS)
    assert code == 1
    said = capfd.readouterr().err
    assert "refused the key (status 401)" in said
    assert "AGENTGYM_API_KEY" in said
    assert len(server.bodies) - asked <= 8  # those that were in flight
