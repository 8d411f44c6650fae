"""Attempts at a task, and a scripted judge on this machine."""

import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from agentgym.core.ledger import Judging
from agentgym.core.trajectory import (
    ModelCall,
    RequestedCall,
    RolloutStatus,
    ToolCall,
    Trajectory,
)
from agentgym.models.reference import Endpoint
from agentgym.plugins.judge.group_judge import GroupJudge
from tests.rollout.stub_server import Handler, StubServer, completion

RULES = {"role": "system", "content": "Be brief."}
ASKED = {"role": "user", "content": "Book the red room."}
TOOLS = [{"type": "function", "function": {"name": "book", "description": "Books."}}]


def attempt(
    name: str,
    text: str,
    *,
    success: bool | None = True,
    reward: float | None = 1.0,
    status: RolloutStatus = RolloutStatus.SUCCEEDED,
) -> Trajectory:
    """Return an attempt that books a room and then says ``text``."""
    requested = RequestedCall(id="c1", name="book", arguments='{"room": "red"}')
    first = ModelCall(messages=[RULES, ASKED], tools=TOOLS, tool_calls=[requested])
    said = {"role": "assistant", "content": None, "tool_calls": [requested.to_openai()]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "booked"}
    last = ModelCall(messages=[RULES, ASKED, said, result], tools=TOOLS, content=text)
    call = ToolCall(id="c1", name="book", arguments={"room": "red"}, result="booked")
    return Trajectory(
        rollout_id=name,
        scenario="rooms",
        task_id="t",
        steps=[first, call, last],
        success=success,
        reward=reward,
        status=status,
        answer=text,
    )


def shown_attempts(body: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the entries of each attempt in a request, by label."""
    mark = body["messages"][1]["content"].split(" tools\n")[0]
    found: dict[str, list[dict[str, Any]]] = {}
    label = ""
    for line in body["messages"][1]["content"].splitlines():
        if line.startswith(mark):
            label = line.removeprefix(mark).strip()
            found[label] = []
        else:
            found[label].append(json.loads(line))
    return found


def scoring(score: Callable[[list[dict[str, Any]]], float]) -> Handler:
    """Return a judge that scores each attempt by its entries."""

    async def answer(request: web.Request, body: dict[str, Any]) -> web.Response:
        shown = shown_attempts(body)
        scores = [
            {"attempt": name.split()[1], "why": "so", "score": score(entries)}
            for name, entries in shown.items()
            if name.startswith("attempt ")
        ]
        return says(json.dumps({"scores": scores}))

    return answer


def says(text: str, *, counted: bool = True) -> web.Response:
    """Return a completion that was charged 1,000 tokens and 100."""
    body = completion(text, token_ids=None, logprobs=None)
    del body["prompt_token_ids"]
    body["usage"] = {"prompt_tokens": 1000, "completion_tokens": 100}
    if not counted:
        del body["usage"]
    return web.json_response(body)


def by_length(entries: list[dict[str, Any]]) -> float:
    """Score short answers higher: 1 for none, 0 for 100 characters."""
    return 1 - len(entries[-1]["text"]) / 100


def judge_at(server: StubServer, **options: Any) -> tuple[GroupJudge, Judging]:
    """Return a judge at a server, and its record."""
    record = Judging(model="scripted")
    endpoint = Endpoint((server.endpoint,), "", "m")
    return GroupJudge(endpoint, "Short is better.", record, **options), record
