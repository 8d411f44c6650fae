"""What a warm start answers: in its first answer, and after its calls."""

import json

import pytest

from agentgym.core.background import in_background
from agentgym.core.needs import NeededCall
from agentgym.core.policy import ChatRequest
from agentgym.core.task import Split, Task
from agentgym.engines.scripted import Reply
from agentgym.train.warm_start import PlanPolicy, Routes
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


TASK = Task(
    id="t", split=Split.TRAIN, seed=0, family="lamps", level=1, instruction="On."
)
MESSAGES = [{"role": "user", "content": TASK.instruction}]


@pytest.mark.parametrize("form", ["report", ""])  # the provider's, the framework's
def test_after_its_calls_it_answers_in_the_form(form: str) -> None:
    routes = Routes(frozenset({"turn_on"}), "", (), frozenset({"report"} - {form}))
    policy = PlanPolicy(
        ScriptedEngine(lambda request: Reply("Done.")).imitation(),
        {"r": (TASK, [NeededCall("turn_on", {"lamp": "a"})])},
        routes,
    )
    messages, made = MESSAGES, []
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


@pytest.mark.parametrize(("one_answer", "calls"), [(True, ["a", "b"]), (False, ["a"])])
def test_all_calls_are_in_the_only_answer_of_a_task(
    one_answer: bool, calls: list[str]
) -> None:
    task = TASK.model_copy(update={"one_answer": one_answer})
    policy = PlanPolicy(
        ScriptedEngine(lambda request: Reply("Done.")).imitation(),
        {"r": (task, [NeededCall("turn_on", {"lamp": lamp}) for lamp in ("a", "b")])},
    )
    tools = [{"type": "function", "function": TURN}]
    request = ChatRequest(MESSAGES, tools, session="r/0")
    answer = in_background(policy.chat(request))
    assert [json.loads(c.arguments)["lamp"] for c in answer.tool_calls] == calls
