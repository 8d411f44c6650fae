"""A warm start of tasks that end with their first answer makes all calls in it."""

from agentgym.core.background import in_background
from agentgym.core.needs import NeededCall
from agentgym.core.policy import ChatRequest
from agentgym.core.task import Split, Task
from agentgym.engines.scripted import Reply
from agentgym.train.warm_start.plans import PlanPolicy
from tests.scripted_engine import ScriptedEngine

LAMPS = [NeededCall("turn_on", {"lamp": lamp}) for lamp in ("a", "b")]


def calls_of(*, one_answer: bool) -> list[str]:
    """Return the arguments of the first answer's calls."""
    task = Task(
        id="t",
        split=Split.TRAIN,
        seed=0,
        family="lamps",
        level=1,
        instruction="Turn on a and b.",
        one_answer=one_answer,
    )
    imitation = ScriptedEngine(lambda request: Reply("Done.")).imitation()
    policy = PlanPolicy(imitation, {"r": (task, LAMPS)})
    request = ChatRequest(
        messages=[{"role": "user", "content": task.instruction}],
        tools=[{"type": "function", "function": {"name": "turn_on"}}],
        session="r/0",
    )
    return [c.arguments for c in in_background(policy.chat(request)).tool_calls]


def test_all_calls_are_in_the_first_answer() -> None:
    both = ['{"lamp": "a"}', '{"lamp": "b"}']
    assert calls_of(one_answer=True) == both
    assert calls_of(one_answer=False) == both[:1]
