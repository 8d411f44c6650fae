"""The scenario as the trainer meets it: tasks, splits, sizes, real conversations."""

import json
import re
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest
from agentgym.core.task import Split, Task
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.models.nano import nano_path
from agentgym.packs.customer_support.families import FAMILIES
from agentgym.packs.customer_support.scenario import CustomerSupportScenario
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import RolloutSession
from recipes.nano.customer_support_oracle import demonstrate, solve
from tests.some import some

ALL = (1, 2, 3)


def tasks_of(split: Split, each: int, seed: int = 5) -> list[Task]:
    return CustomerSupportScenario().tasks(
        split, seed, each * len(FAMILIES), levels=ALL
    )


@pytest.mark.slow
@pytest.mark.parametrize("split", list(Split))
async def test_every_argument_of_a_plan_can_be_known(split: Split) -> None:
    """Customer or tools have shown each value before the call that uses it."""
    for task in some(tasks_of(split, 8)):
        messages = (await demonstrate(task)).messages
        needed = iter(task.goal["plan"])
        seen = ""
        for message in messages[1:]:
            for call in message.get("tool_calls", ()):
                step = next(needed)
                assert call["function"]["name"] == step["tool"]
                for value in step["args"].values():
                    shown = rf"(?<!\w){re.escape(str(value).lower())}(?!\w)"
                    assert re.search(shown, seen), (task.id, value)
            if message["role"] != "assistant":
                seen += f"\n{message['content'].lower()}"


@pytest.mark.slow
async def test_conversations_fit_the_shipped_policy() -> None:
    tokenizer = AutoTokenizer.from_pretrained(nano_path())
    scenario = CustomerSupportScenario()
    tools = [spec.to_openai() for spec in scenario.tools()]

    def count(messages: list[dict[str, object]]) -> int:
        ids = tokenizer.apply_chat_template(messages, tools=tools)["input_ids"]
        return len(ids)

    assert count([{"role": "system", "content": scenario.system_prompt()}]) <= 425
    for split in Split:
        for task in tasks_of(split, 4):
            assert count((await demonstrate(task)).messages) <= 900


def asker(tasks: list[Task]) -> ScriptedPolicy:
    """Return a policy that asks until a step's arguments are known, then calls."""
    plans = {task.instruction: solve(task) for task in tasks}

    def respond(request: ChatRequest) -> Reply:
        told = [m["content"] for m in request.messages if m["role"] in ("user", "tool")]
        made = sum(m["role"] == "tool" for m in request.messages)
        first = next(m["content"] for m in request.messages if m["role"] == "user")
        plan = plans[first]
        if made == len(plan):
            return Reply("Done.")
        step = plan[made]
        if all(str(v).lower() in str(told).lower() for v in step.args.values()):
            extra = {"reason": "late"} if step.tool == "escalate" else {}
            return Reply(calls=[(step.tool, {**step.args, **extra})])
        missing = next(k for k, v in step.args.items() if str(v) not in str(told))
        done = plan[made].request > plan[made - 1].request
        return Reply("Done." if done else f"What is the {missing.split('_')[0]}?")

    return ScriptedPolicy(respond)


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["native", "langchain"])
def test_conversations_through_real_agents(tmp_path: Path, framework: str) -> None:
    tasks = tasks_of(Split.TRAIN, 1)
    requests = [
        RolloutRequest(f"r{i}", task, train=True, group=f"g{i}", step=1)
        for i, task in enumerate(tasks)
    ]
    config = TrainingConfig.create(scenario="customer_support", framework=framework)
    with RolloutSession(config, asker(tasks), tmp_path, 1) as session:
        found = session.run(requests, lambda _: None)
    for trajectory in some(found):
        assert trajectory.success, json.dumps(trajectory.to_dict())[-2000:]
