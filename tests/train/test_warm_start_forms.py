"""A warm start ends in the form that an agent offers its model with its tools."""

import json

import pytest

from agentgym.core.background import in_background
from agentgym.core.needs import NeededCall
from agentgym.core.policy import ChatRequest
from agentgym.core.task import Split, Task
from agentgym.engines.scripted import Reply
from agentgym.train.warm_start.plans import PlanPolicy, Routes
from tests.scripted_engine import ScriptedEngine

TURN = {"name": "turn_on"}
REPORT = {
    "name": "report",
    "parameters": {
        "type": "object",
        "properties": {"lamps": {"type": "integer"}},
        "required": ["lamps"],
    },
}


@pytest.mark.parametrize("form", ["report", ""])  # the provider's, the framework's
def test_after_its_calls_it_answers_in_the_form(form: str) -> None:
    task = Task(
        id="t", split=Split.TRAIN, seed=0, family="lamps", level=1, instruction="On."
    )
    routes = Routes(frozenset({"turn_on"}), "", (), frozenset({"report"} - {form}))
    policy = PlanPolicy(
        ScriptedEngine(lambda request: Reply("Done.")).imitation(),
        {"r": (task, [NeededCall("turn_on", {"lamp": "a"})])},
        routes,
    )
    messages = [{"role": "user", "content": task.instruction}]
    made = []
    for _ in range(2):
        request = ChatRequest(
            messages,
            [{"type": "function", "function": each} for each in (TURN, REPORT)],
            wants_call=True,
            form=form,
            session="r/0/agent",
        )
        [call] = in_background(policy.chat(request)).tool_calls
        made.append(call.name)
        messages = [*messages, {"role": "tool", "tool_call_id": "call_00001"}]
    assert made == ["turn_on", "report"]
    assert isinstance(json.loads(call.arguments)["lamps"], int)
