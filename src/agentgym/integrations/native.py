"""Run the built-in agent, framework ``native``: a tool loop with two prompt formats."""

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from agentgym.core.agent import Trained
from agentgym.core.files import parse_json
from agentgym.core.tools import Tool
from agentgym.core.trajectory import RequestedCall
from agentgym.errors import RolloutError, UnsupportedError
from agentgym.integrations.base import (
    AgentLoop,
    Blueprint,
    Conversation,
    FrameworkAdapter,
)
from agentgym.integrations.episode import Episode, current_episode
from agentgym.integrations.transport import EpisodePosts
from agentgym.models.reply import ModelReply, read_reply

Messages = list[dict[str, Any]]
Ask = Callable[[Messages], Awaitable[ModelReply]]


class NextMove(NamedTuple):
    """The next action after a model's reply.

    Attributes:
        calls: Tool calls to run.
        answer: The final answer; None if the reply does not end the turn.
        complaint: Message to the model if its reply has the wrong form; else empty.
    """

    calls: Sequence[RequestedCall] = ()
    answer: str | None = None
    complaint: str = ""


class ToolPrompt:
    """Prompt format with the tool calls of OpenAI's chat completions.

    Attributes:
        options: Options to send with every request.
    """

    options: Mapping[str, Any] = MappingProxyType({})

    def opening(self, system_prompt: str, tools: Sequence[Tool]) -> Messages:
        """Return the messages before the task: the system prompt, unless empty."""
        if not system_prompt:
            return []
        return [{"role": "system", "content": system_prompt}]

    def read(self, reply: ModelReply) -> NextMove:
        """Return the next action after a model's reply."""
        if reply.tool_calls:
            return NextMove(reply.tool_calls)
        return NextMove(answer=reply.content)

    def with_result(self, call: RequestedCall, result: str) -> dict[str, Any]:
        """Return the message that gives a call's result to the model."""
        return {"role": "tool", "tool_call_id": call.id, "content": result}


class ReAct(ToolPrompt):
    """Prompt format with tools and tool calls as text (Yao et al., arXiv:2210.03629).

    So it also works with models and servers that do not support tool calls.
    """

    options = MappingProxyType({"offer_tools": False, "stop": ["\nObservation:"]})
    _ACTION = re.compile(r"^[ \t]*Action:[ \t]*(.+?)[ \t]*$", re.MULTILINE)
    _INPUT = re.compile(r"\s*Action Input:\s*(?:```(?:json)?\s*)?")
    _ANSWER = re.compile(r"^[ \t]*Final Answer:", re.MULTILINE)
    _FORMAT = """
Answer in exactly one of two forms. To use a tool, write

Thought: why you need it
Action: the tool's name
Action Input: its arguments as a JSON object

and stop there; you then get its result, as an Observation. Once you know
the answer, write

Thought: why this is the answer
Final Answer: the answer
"""
    _NEITHER = (
        "Observation: Error: write either an Action with an Action Input, or a Final "
        "Answer, each at the beginning of a line."
    )

    def opening(self, system_prompt: str, tools: Sequence[Tool]) -> Messages:
        """Return a system prompt that describes the tools and the format of actions."""
        lines = [
            f"- {tool.spec.name}: {tool.spec.description} "
            f"Arguments: {json.dumps(tool.spec.parameters.get('properties', {}))}"
            for tool in tools
        ]
        offered = "\n".join(["Tools:", *lines]) if lines else "There are no tools."
        prompt = f"{system_prompt}\n{offered}{self._FORMAT}"
        return [{"role": "system", "content": prompt}]

    def read(self, reply: ModelReply) -> NextMove:
        """Return the first action or final answer, whichever comes first."""
        text = reply.content
        action, answer = self._ACTION.search(text), self._ANSWER.search(text)
        if answer is not None and (action is None or answer.start() < action.start()):
            return NextMove(answer=text[answer.end() :].strip())
        if action is None:
            return NextMove(complaint=self._NEITHER)
        label = self._INPUT.match(text, action.end())
        arguments = "" if label is None else _object(text[label.end() :])
        return NextMove([RequestedCall(id="", name=action[1], arguments=arguments)])

    def with_result(self, call: RequestedCall, result: str) -> dict[str, Any]:
        """Return the result as a user message that starts with ``Observation:``."""
        return {"role": "user", "content": f"Observation: {result}"}


def _object(text: str) -> str:
    """Return the JSON text at the start of ``text``, or else the first paragraph."""
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except ValueError:
        return text.split("\n\n")[0].strip() or "(nothing)"
    return text[:end]


class ToolLoop(Conversation):
    """Asks the model, and runs the model's tool calls until the model answers.

    ``ask`` returns a function that sends messages and the episode's tools to the model.
    When tools are added, ``ask`` is called again, because the function keeps its tools.
    """

    def __init__(
        self,
        episode: Episode,
        ask: Callable[[], Ask],
        prompt: ToolPrompt,
        system_prompt: str,
    ) -> None:
        self._episode = episode
        self._new_ask = ask
        self._ask = ask()
        self._prompt = prompt
        self._messages = prompt.opening(system_prompt, list(episode.tools.values()))

    def add_tools(self) -> None:
        """Offer new tools; raise UnsupportedError if the system prompt lists tools."""
        if not self._prompt.options.get("offer_tools", True):
            super().add_tools()
        self._ask = self._new_ask()

    async def turn(self, message: str) -> str:
        """Return the agent's answer to one message of the user."""
        said = self._messages
        said.append({"role": "user", "content": message})
        while True:
            reply = await self._ask(said)
            said.append(reply.message)
            move = self._prompt.read(reply)
            if move.answer is not None:
                return move.answer
            for call in move.calls:
                result = await self._episode.use_tool(
                    call.name, call.arguments, call_id=call.id or None
                )
                said.append(self._prompt.with_result(call, result))
            if move.complaint:
                said.append({"role": "user", "content": move.complaint})


class NativeAgent(AgentLoop):
    """Runs the built-in tool loop, with model calls to the gateway."""

    def __init__(self, blueprint: Blueprint) -> None:
        self._blueprint = blueprint
        self._posts = EpisodePosts(blueprint)

    def converse(self) -> Conversation:
        """Return a new conversation with the agent, in the current episode."""
        episode, prompt = current_episode(), self._blueprint.system_prompt

        def ask() -> Ask:
            return partial(self._ask, [x.to_openai() for x in episode.task_tools])

        return ToolLoop(episode, ask, ToolPrompt(), prompt)

    async def _ask(self, tools: list[dict[str, Any]], messages: Messages) -> ModelReply:
        body = {"model": self._blueprint.model, "messages": messages}
        body |= {"tools": tools} if tools else {}  # some servers refuse an empty list
        answer = await self._posts.post("/chat/completions", json.dumps(body).encode())
        text = answer.body.decode(errors="replace")
        if not answer.is_success:
            raise RolloutError(f"The gateway answered {answer.status}: {text}")
        return read_reply(parse_json(text), step=current_episode().turns)

    async def close(self) -> None:
        """Close the HTTP connections."""
        self._posts.close()


class NativeAdapter(FrameworkAdapter):
    """Trains the built-in agent, which can be exported to other frameworks."""

    name = "native"

    def check(self) -> None:
        """Do nothing, because this framework needs no other packages."""

    def check_reference(self, reference: str | None) -> None:
        """Raise UnsupportedError if an agent is given, because it needs a framework."""
        if reference is not None:
            raise UnsupportedError(
                f"--agent {reference} needs a framework; choose one with --framework."
            )

    def create_environment(self, blueprint: Blueprint) -> AgentLoop:
        """Return the built-in agent; raise UnsupportedError if an agent is given."""
        self.check_reference(blueprint.agent.reference)
        return NativeAgent(blueprint)

    def wrap_agent(self, trained: Trained, **options: Any) -> Any:
        """Raise UnsupportedError: the built-in agent is not a framework's object."""
        raise UnsupportedError(
            "Use to_langchain() or another to_...() method, or serve the folder."
        )
