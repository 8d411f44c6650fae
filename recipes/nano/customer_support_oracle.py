"""The oracle: a script that solves a task with the calls of its shortest solution.

It asks the customer for unknown facts, and uses only arguments that the customer or a
tool has mentioned. This proves that each task can be solved without guessing.
"""

import json
from dataclasses import dataclass
from random import Random
from typing import Any

from agentgym.core.task import Task
from agentgym.core.tools import Tool, ToolOutcome
from agentgym.core.trajectory import Reward, ToolCall, Trajectory
from agentgym.errors import RuleViolation, ScenarioError, ToolError
from agentgym.packs.customer_support.environment import SupportEnvironment
from agentgym.packs.customer_support.scenario import SYSTEM_PROMPT, score
from agentgym.packs.kit.tasks import Step, plan_of

QUESTIONS = {
    "email": ("What is your email?", "What is your email address?"),
    "postcode": ("What is your postcode?", "Please tell me your postcode."),
    "order_id": (
        "What is the order number?",
        "Which order?",
        "What is your order number?",
    ),
}
ANSWERS = ("Done.", "That is done.", "All done.", "It is done.", "Finished.")
REASONS = ("the customer asked for it", "the rules do not allow it", "too late")
REFUSALS = ("Sorry, that is not possible.", "Sorry, I may not do that.")


@dataclass(frozen=True)
class SupportDemonstration:
    """One episode, as OpenAI's messages, in which the oracle solves the task."""

    messages: list[dict[str, Any]]
    reward: Reward


def solve(
    task: Task, *, follow_rules: float = 1.0, rng: Random | None = None
) -> list[Step]:
    """Return the calls that solve a task, maybe without some that only rules require.

    Args:
        task: The task.
        follow_rules: Probability of following each of the rules to find the customer,
            to verify the customer, and to look at an order. A task whose calls are all
            required keeps all of them.
        rng: Decides which rules are followed; by default the task's id is the seed.
    """
    rng = rng or Random(task.id)
    plan = plan_of(task.goal)
    if follow_rules >= 1 or task.goal["every_step"]:
        return plan
    # Later facts become known when the identity is checked.
    comes_late = task.family in ("changed_mind", "two_requests")
    identified = comes_late or rng.random() < follow_rules
    identified |= any(
        "customer_id" in step.args and step.tool != "verify_identity" for step in plan
    )
    verified = comes_late or rng.random() < follow_rules
    looked = plan[-1].tool in ("refund_order", "return_item")
    looked |= rng.random() < follow_rules
    kept = {
        "get_customer": identified,
        "verify_identity": identified and verified,
        "get_order": looked,
    }
    steps = [step for step in plan if kept.get(step.tool, True)]
    if not looked and plan[0].tool == "get_order":  # the number was wrong
        steps.insert(0, plan[0])
    return steps


async def demonstrate(
    task: Task,
    *,
    follow_rules: float = 1.0,
    rng: Random | None = None,
    system_prompt: str = SYSTEM_PROMPT,
) -> SupportDemonstration:
    """Run the scripted solution of a task, and record the conversation."""
    rng = rng or Random(task.id)
    environment = SupportEnvironment(
        task.initial_state, task.instruction, enforce_rules=follow_rules >= 1
    )
    talk = _Talk(environment, rng, system_prompt, task)
    for step in solve(task, follow_rules=follow_rules, rng=rng):
        await talk.make(step)
    talk.say(rng.choice(REFUSALS if task.goal["refuse"] else ANSWERS))
    reward = score(task, environment, talk.trajectory)
    environment.close()
    return SupportDemonstration(talk.messages, reward)


class _Talk:
    """The conversation of the oracle (a script) with the customer of a task."""

    def __init__(
        self, environment: SupportEnvironment, rng: Random, system: str, task: Task
    ) -> None:
        self._environment = environment
        self._rng = rng
        self._tools: dict[str, Tool] = {
            tool.spec.name: tool for tool in environment.tools()
        }
        self._request = 0
        self.messages: list[dict[str, Any]] = [
            {"role": "system", "content": system},
            {"role": "user", "content": task.instruction},
        ]
        self.trajectory = Trajectory(
            rollout_id="oracle", scenario="customer_support", task_id=task.id
        )

    async def make(self, step: Step) -> None:
        """Ask the customer for a step's unknown arguments, then make its call."""
        if step.request > self._request:
            self._request = step.request
            self.say(self._rng.choice(ANSWERS))
        for name, value in step.args.items():
            for question in QUESTIONS.get(name, ())[:2]:
                if self.shown(value):
                    break
                self.say(self._rng.choice((question, QUESTIONS[name][0])))
            if not self.shown(value):
                raise ScenarioError(
                    f"No message contains {name}={value!r} of {step.tool}."
                )
        arguments = dict(step.args)
        if step.tool == "escalate":
            arguments["reason"] = self._rng.choice(REASONS)
        identity = f"call_{len(self.messages)}"
        outcome = ToolOutcome.OK
        try:
            result = await self._tools[step.tool](**arguments)
        except RuleViolation as error:
            outcome, result = ToolOutcome.RULE_BROKEN, f"Error: {error}"
        except ToolError as error:
            outcome, result = ToolOutcome.RAISED, f"Error: {error}"
        self.trajectory.steps.append(
            ToolCall(
                name=step.tool, arguments=arguments, outcome=outcome, result=result
            )
        )
        function = {"name": step.tool, "arguments": json.dumps(arguments)}
        calls = [{"id": identity, "type": "function", "function": function}]
        self.messages += [
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": identity, "content": result},
        ]

    def say(self, text: str) -> None:
        """Send a text to the customer; append it and the reply to ``messages``."""
        self.messages.append({"role": "assistant", "content": text})
        reply = self._environment.user_reply(text)
        if reply is not None:
            self.messages.append({"role": "user", "content": reply})

    def shown(self, value: object) -> bool:
        """Return whether a message of the customer or of a tool contains a value."""
        texts = (m["content"] for m in self.messages if m["role"] in ("user", "tool"))
        return any(str(value).casefold() in text.casefold() for text in texts)
