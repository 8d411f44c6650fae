"""The ReAct agent: thoughts and actions as text (Yao et al., arXiv:2210.03629)."""

import json
import re
from dataclasses import dataclass
from typing import ClassVar

from agentgym.core.tools import Tool
from agentgym.rollout.solo.agents.base import RolloutAgent
from agentgym.rollout.solo.attempt import Attempt

_ACTION = re.compile(r"^[ \t]*Action:[ \t]*(.+?)[ \t]*$", re.MULTILINE)
_INPUT = re.compile(r"\s*Action Input:\s*(?:```(?:json)?\s*)?")
_ANSWER = re.compile(r"^[ \t]*Final Answer:", re.MULTILINE)
_OBSERVATION = "\nObservation:"
_FORMAT = """
Answer in exactly one of two forms. To use a tool, write

Thought: why you need it
Action: the tool's name
Action Input: its arguments as a JSON object

and stop there; you are then told what it returned, as an Observation. Once you know
the answer, write

Thought: why this is the answer
Final Answer: the answer
"""
_NEITHER = (
    "Error: write either an Action with an Action Input, or a Final Answer, each at "
    "the beginning of a line."
)


@dataclass(frozen=True)
class Action:
    """A tool call as text: the tool's name and its arguments as written."""

    tool: str
    arguments: str


class ReactAgent(RolloutAgent):
    """For models without tool calling: it reads actions from their text."""

    name: ClassVar[str] = "react"
    system_prompt: ClassVar[str] = (
        "Solve the user's task step by step, with the tools where they help."
    )

    async def run(self, attempt: Attempt) -> str | None:
        """Run the loop."""
        prompt = f"{attempt.system_prompt}\n{describe(list(attempt.tools.values()))}"
        messages = [
            {"role": "system", "content": prompt + _FORMAT},
            {"role": "user", "content": attempt.task.instruction},
        ]
        while True:
            reply = await attempt.ask(messages, offer_tools=False, stop=[_OBSERVATION])
            messages.append(reply.message)
            step = read_step(reply.content)
            if isinstance(step, str):
                more = attempt.user_reply(step)
                if more is None:
                    return step
            elif step is None:
                more = f"Observation: {_NEITHER}"
            else:
                result = await attempt.use_tool(step.tool, step.arguments)
                more = f"Observation: {result}"
            messages.append({"role": "user", "content": more})


def describe(tools: list[Tool]) -> str:
    """Return what a model is told of the tools, one line each."""
    if not tools:
        return "There are no tools."
    lines = [
        f"- {tool.spec.name}: {tool.spec.description} "
        f"Arguments: {json.dumps(tool.spec.parameters.get('properties', {}))}"
        for tool in tools
    ]
    return "\n".join(["Tools:", *lines])


def read_step(text: str) -> Action | str | None:
    """Read the first action or the final answer of a response.

    Returns:
        An action, the answer's text, or None if the text holds neither. Of an action
        and an answer, the one that comes first counts.
    """
    action, answer = _ACTION.search(text), _ANSWER.search(text)
    if action is None or (answer is not None and answer.start() < action.start()):
        return None if answer is None else text[answer.end() :].strip()
    label = _INPUT.match(text, action.end())
    return Action(action[1], "" if label is None else _object(text[label.end() :]))


def _object(text: str) -> str:
    """Return the JSON value that ``text`` starts with, or its first paragraph."""
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except ValueError:
        return text.split("\n\n")[0].strip() or "(nothing)"
    return text[:end]
