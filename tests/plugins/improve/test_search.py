"""The search for better prompts, with GEPA and models that have a script."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from aiohttp import web

from agentgym.core.task import Split, Task
from agentgym.core.trajectory import ModelCall, RolloutStatus, Trajectory
from agentgym.errors import ProviderError
from agentgym.models.reference import Endpoint
from agentgym.plugins.improve.search import Parts, Reflector, score_of, search
from agentgym.rollout.gateway.metered import Meter, MeteredEndpoint, Purse
from agentgym.rollout.prompt_overrides import Wording
from agentgym.scenarios.registry import get_scenario
from tests.rollout.stub_server import StubServer, completion

PROMPT = "You look after files."
TOOLS = {"list_files": "List files.", "read_file": "Read."}
SECRET = "Always ask for the list first."


def attempted(task: Task, prompt: str, tools: dict[str, str], good: bool) -> Trajectory:
    """Return an attempt whose model was sent these texts."""
    messages = [
        {"role": "system", "content": prompt},
        {"role": "user", "content": task.instruction},
    ]
    offered = [
        {"type": "function", "function": {"name": name, "description": text}}
        for name, text in tools.items()
    ]
    return Trajectory(
        rollout_id=task.id,
        scenario="coding",
        task_id=task.id,
        steps=[ModelCall(messages=messages, tools=offered, content="Done.")],
        reward=float(good),
        success=good,
        right_arguments=float(good),
        status=RolloutStatus.SUCCEEDED if good else RolloutStatus.FAILED,
    )


class Bench:
    """An agent that succeeds once its prompt has the right sentence."""

    def __init__(self) -> None:
        self.scenario = get_scenario("coding")
        self.seen: set[str] = set()
        self.words: list[Wording] = []

    def attempt(
        self, name: str, tasks: Sequence[Task], wording: Wording
    ) -> list[Trajectory]:
        self.seen |= {task.id for task in tasks}
        self.words.append(wording)
        body: dict[str, Any] = {"messages": [{"role": "system", "content": PROMPT}]}
        prompt = wording.applied(body)["messages"][0]["content"]
        return [attempted(task, prompt, TOOLS, SECRET in prompt) for task in tasks]


async def reflects(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """Write a better prompt, and a description that changes nothing."""
    asked = str(body["messages"])
    text = f"{PROMPT} {SECRET}" if PROMPT in asked else "It reads a file."
    answer = completion(f"```\n{text}\n```")
    answer["usage"] = {"prompt_tokens": 500, "completion_tokens": 50}
    return web.json_response(answer)


@contextmanager
def reflector(
    respond: Any, cap: float = 10.0
) -> Iterator[tuple[Reflector, Meter, StubServer]]:
    with StubServer(respond) as server:
        meter = Meter(Purse(cap), read=1.0, written=4.0)
        endpoint = Endpoint((server.endpoint,), "", "thinker")
        yield Reflector(MeteredEndpoint.of(endpoint, meter)), meter, server


def training_tasks(count: int = 8) -> list[Task]:
    return list(get_scenario("coding").tasks(Split.TRAIN, 0, count))


def parts() -> Parts:
    return Parts([attempted(t, PROMPT, TOOLS, False) for t in training_tasks(3)])


def test_a_better_prompt_is_found_on_training_tasks_alone() -> None:
    bench, tasks = Bench(), training_tasks()
    with reflector(reflects) as (asked, meter, server):
        found = search(bench, parts(), tasks, asked, rollouts=60, seed=0)
    assert [change.after for change in found.prompts] == [f"{PROMPT} {SECRET}"]
    assert found.prompts[0].before == PROMPT
    assert bench.seen <= {task.id for task in tasks}
    assert asked.asked == len(server.bodies) > 0
    assert meter.cost == pytest.approx(asked.asked * (500 + 4 * 50) / 1e6)
    sent = json.dumps(server.bodies[0])
    assert "It failed" in sent, "the reflection model sees what went wrong"
    assert "The calls that it needs" in sent


def test_nothing_better_leaves_the_texts_as_they_are() -> None:
    async def useless(request: web.Request, body: dict[str, Any]) -> web.Response:
        return web.json_response(completion("```\nBe good.\n```"))

    with reflector(useless) as (asked, _, _):
        found = search(Bench(), parts(), training_tasks(), asked, rollouts=40, seed=0)
    assert not found


@pytest.mark.parametrize(
    ("cap", "status", "says"),
    [(0.001, 200, "might cost more"), (10.0, 401, "refused the key")],
    ids=["cap", "key"],
)
def test_a_search_ends_with_its_reflection_model(
    cap: float, status: int, says: str
) -> None:
    async def respond(request: web.Request, body: dict[str, Any]) -> web.Response:
        return web.json_response({"error": {"message": "no"}}, status=status)

    bench = Bench()
    with reflector(respond, cap) as (asked, meter, server):
        found = search(bench, parts(), training_tasks(), asked, rollouts=400, seed=0)
    assert not found
    assert says in asked.problem
    assert meter.cost == 0.0
    assert len(server.bodies) == (status == 401)
    assert len(bench.words) < 10


def test_a_refused_request_is_not_sent_again() -> None:
    with reflector(reflects, cap=0.0) as (asked, _, server):
        for _ in range(2):
            with pytest.raises(ProviderError, match="might cost more"):
                asked("hello")
    assert server.bodies == []


def test_texts_that_change_from_task_to_task_are_left_alone() -> None:
    tasks = training_tasks(4)
    made = [
        attempted(task, f"{PROMPT} Now: {task.id}", {**TOOLS, "now": task.id}, False)
        for task in tasks
    ]
    assert set(Parts(made).texts) == {
        "description of the tool list_files",
        "description of the tool read_file",
    }


def test_right_calls_count_where_nothing_succeeds() -> None:
    [task] = training_tasks(1)
    failed = attempted(task, PROMPT, TOOLS, False)
    assert score_of(failed) == 0.0
    assert score_of(failed.model_copy(update={"right_arguments": 0.5})) == 0.25
    assert score_of(attempted(task, PROMPT, TOOLS, True)) == 1.0
