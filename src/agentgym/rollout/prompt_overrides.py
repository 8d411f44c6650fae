"""Wording: replace an agent's system prompts and tool descriptions in its requests.

The agent's code does not change. The gateway replaces the texts in the requests on
their way to the model, so this works the same for all frameworks.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from pydantic import Field

from agentgym.core.files import parse_json
from agentgym.core.openai import joined_text
from agentgym.core.policy import ChatRequest, ChatResult, Policy
from agentgym.core.records import FrozenRecord
from agentgym.errors import UsageError, unreadable

_OF_SYSTEM = ("system", "developer")


class NewText(FrozenRecord):
    """The agent's own text (``before``), and the text that replaces it (``after``)."""

    before: str
    after: str


class Wording(FrozenRecord):
    """New texts for an agent's system prompts and tool descriptions; empty by default.

    Attributes:
        prompts: Replacements of system prompts. If ``before`` is empty, ``after`` is
            added to conversations without a system prompt.
    """

    prompts: tuple[NewText, ...] = ()
    tools: dict[str, NewText] = Field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Create a Wording from JSON, as in :attr:`text`; an empty Wording from ""."""
        return cls.model_validate(parse_json(text)) if text.strip() else cls()

    @property
    def text(self) -> str:
        """The replacements as JSON, for a file or the setting ``prompts``."""
        return self.model_dump_json(indent=2) + "\n"

    def __bool__(self) -> bool:
        return bool(self.prompts or self.tools)

    def applied(self, body: dict[str, Any]) -> dict[str, Any]:
        """Copy a chat completion request, and replace the agent's texts in it."""
        messages, tools = body.get("messages"), body.get("tools")
        if not self or not isinstance(messages, list):
            return body
        changed = body | {"messages": self._messages(messages)}
        if isinstance(tools, list) and self.tools:
            changed["tools"] = [self._tool(tool) for tool in tools]
        return changed

    def _messages(self, messages: list[Any]) -> list[Any]:
        prompts = {each.before.strip(): each.after for each in self.prompts}
        found = [
            {**message, "content": prompts[text]}
            if (text := system_text(message)) in prompts and text is not None
            else message
            for message in messages
        ]
        has_none = all(system_text(message) is None for message in messages)
        if has_none and "" in prompts:
            found.insert(0, {"role": "system", "content": prompts[""]})
        return found

    def _tool(self, tool: Any) -> Any:
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or function.get("name") not in self.tools:
            return tool
        name = function["name"]
        return {**tool, "function": {**function, "description": self.tools[name].after}}


def system_text(message: Any) -> str | None:
    """Return the stripped text of a system message; None for other messages."""
    if not isinstance(message, Mapping) or message.get("role") not in _OF_SYSTEM:
        return None
    content = message.get("content")
    try:
        text = joined_text(content) if isinstance(content, list) else content
    except ValueError:
        return None
    return text.strip() if isinstance(text, str) else None


def wording_text(given: str) -> str:
    """Return a Wording as JSON; ``given`` is this JSON, or the path of a JSON file."""
    if not given:
        return given
    is_text = given.lstrip().startswith("{")
    try:
        path = Path(given).expanduser()
        text = given if is_text else path.read_text(encoding="utf-8")
        return Wording.parse(text).text
    except (OSError, ValueError) as error:
        shown = "the text" if is_text else repr(given)
        raise UsageError(
            f"prompts = {shown} cannot be read: {unreadable(error)}. Give the file of "
            "prompts that `agentgym improve` wrote."
        ) from None


class WordedPolicy(Policy):
    """Wraps a policy; replaces system prompts and tool descriptions in requests."""

    def __init__(self, policy: Policy, wording: Wording) -> None:
        self._policy = policy
        self._wording = wording
        self.gives_forms = policy.gives_forms

    @property
    def failure(self) -> str:
        """Why the policy cannot answer any more; empty if it can."""
        return self._policy.failure

    @property
    def model_name(self) -> str:
        """The policy's name."""
        return self._policy.model_name

    async def chat(self, request: ChatRequest) -> ChatResult:
        """Return the policy's answer to one request."""
        return await self._policy.chat(self._worded(request))

    async def stream(self, request: ChatRequest) -> AsyncIterator[str | ChatResult]:
        """Yield parts of the response, then the whole result."""
        async for item in self._policy.stream(self._worded(request)):
            yield item

    def room(self, request: ChatRequest) -> tuple[int, int]:
        """Return the number of prompt tokens, and how many more fit the context."""
        return self._policy.room(self._worded(request))

    async def release(self) -> None:
        """Close the policy's connections in the current event loop."""
        await self._policy.release()

    def close(self) -> None:
        """Close the wrapped policy."""
        self._policy.close()

    def _worded(self, request: ChatRequest) -> ChatRequest:
        body = {"messages": request.messages, "tools": request.tools}
        return replace(request, **self._wording.applied(body))
