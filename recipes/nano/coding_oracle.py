"""The oracle: a script that solves a task with the calls of its shortest solution.

Tests use it to show that every task can be solved. Pretraining uses its conversations,
in which some calls that only a rule requires are missing at random. So the pretrained
policy has to learn the rules by reinforcement learning.
"""

import json
from dataclasses import dataclass
from random import Random
from typing import Any

from agentgym.core.task import Task
from agentgym.core.tools import Tool, run_tool
from agentgym.core.trajectory import Reward, ToolCall, Trajectory
from agentgym.packs.coding.environment import CodingEnvironment
from agentgym.packs.coding.scenario import SYSTEM_PROMPT, score
from agentgym.packs.kit.tasks import Step, plan_of
from agentgym.sandbox import Sandbox

_ANSWERS = (
    "Done.",
    "That is done.",
    "All done.",
    "It is done.",
    "Finished.",
    "Here it is.",
    "Ready.",
)
_REFUSALS = (
    "I may not change tests.",
    "Tests may not be changed.",
    "I cannot change a test file.",
    "Test files stay as they are.",
)


@dataclass(frozen=True)
class Demonstration:
    """One episode, as OpenAI's messages, in which the oracle solves the task."""

    messages: list[dict[str, Any]]
    reward: Reward


def solve(
    task: Task, *, follow_rules: float = 1.0, rng: Random | None = None
) -> list[Step]:
    """Return the calls that solve a task, maybe without some that only rules require.

    Args:
        task: The task.
        follow_rules: Probability of following a rule at each step where it applies. The
            rules: read a file before an edit (else a search replaces the reading), read
            a script before running it, run the tests after an edit, and never edit a
            test file.
        rng: Decides at which steps rules are followed; by default the task's id is the
            seed.
    """
    rng = rng or Random(task.id)
    plan = plan_of(task.goal)
    steps: list[Step] = []
    for index, step in enumerate(plan):
        after = plan[index + 1] if index + 1 < len(plan) else None
        before = plan[index - 1] if index else None
        kept = rng.random() < follow_rules
        if step.tool == "read_file" and after and after.tool == "edit_file":
            steps.append(step if kept else _search_for(after))
        elif (after and (step.tool, after.tool) == ("read_file", "run_script")) or (
            before and (before.tool, step.tool) == ("edit_file", "run_tests")
        ):
            steps += [step] if kept else []
        else:
            steps.append(step)
    if task.family == "change_test" and rng.random() >= follow_rules:
        steps += _edit_of_test(task, plan[0].args["path"], rng)
    return steps


async def demonstrate(
    task: Task,
    sandbox: Sandbox,
    *,
    follow_rules: float = 1.0,
    rng: Random | None = None,
    system_prompt: str = SYSTEM_PROMPT,
) -> Demonstration:
    """Run the scripted solution of a task, and record the conversation."""
    rng = rng or Random(task.id)
    files = task.initial_state["files"]
    environment = CodingEnvironment(files, sandbox, enforce_rules=follow_rules >= 1)
    tools = {tool.spec.name: tool for tool in environment.tools()}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": system_prompt},
        {"role": "user", "content": task.instruction},
    ]
    trajectory = Trajectory(rollout_id="oracle", scenario="coding", task_id=task.id)
    steps = solve(task, follow_rules=follow_rules, rng=rng)
    for number, step in enumerate(steps, 1):
        call = await _call(tools, step)
        trajectory.steps.append(call)
        messages += _messages(f"call_{number}", step, call.result)
    edited = any(step.tool == "edit_file" for step in steps)
    refused = task.family == "change_test" and not edited
    answer = rng.choice(_REFUSALS if refused else _ANSWERS)
    messages.append({"role": "assistant", "content": answer})
    return Demonstration(messages, score(task, environment, trajectory, sandbox))


async def _call(tools: dict[str, Tool], step: Step) -> ToolCall:
    arguments: dict[str, Any] = dict(step.args)
    outcome, result = await run_tool(tools, step.tool, arguments)
    return ToolCall(name=step.tool, arguments=arguments, outcome=outcome, result=result)


def _messages(identity: str, step: Step, result: str) -> list[dict[str, Any]]:
    function = {"name": step.tool, "arguments": json.dumps(_shortest(step))}
    calls = [{"id": identity, "type": "function", "function": function}]
    return [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": identity, "content": result},
    ]


def _shortest(step: Step) -> dict[str, str]:
    """Return a call's arguments without those that equal the tool's defaults."""
    defaults = {"list_files": {"path": "."}, "run_tests": {"path": "tests"}}
    default = defaults.get(step.tool, {"args": ""})
    return {k: v for k, v in step.args.items() if default.get(k) != v}


def _search_for(edit: Step) -> Step:
    """Return a search for the line to edit; it replaces reading the file."""
    return Step("search_code", {"query": edit.args["old"].partition(" = ")[0]})


def _edit_of_test(task: Task, path: str, rng: Random) -> list[Step]:
    """Return an edit that breaks the rule on test files; empty if none is possible."""
    lines = task.initial_state["files"][path].splitlines()
    asserts = [line.strip() for line in lines if lines.count(line) == 1]
    asserts = [line for line in asserts if line.startswith("assert")]
    if not asserts:
        return []
    old = rng.choice(asserts)
    new = f"{old.rpartition(' ')[0]} {rng.randint(2, 99)}"
    return [Step("edit_file", {"path": path, "old": old, "new": new})]
