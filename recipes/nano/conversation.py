"""Conversations of the corpus, and the text that the model sees of them."""

import json
from dataclasses import dataclass, field
from typing import Any

SYSTEM, USER, ASSISTANT, TOOL, END, PAD = (
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|tool|>",
    "<|end|>",
    "<|pad|>",
)
SLIP = "slip"
"""Role of a call that the model shall see but not learn to make."""
SPECIAL = (PAD, END, SYSTEM, USER, ASSISTANT, TOOL)


@dataclass(frozen=True)
class Argument:
    """One argument of a tool: its type as printed, and its default if it has one."""

    name: str
    type: str
    default: Any = ...

    def line(self) -> str:
        """Return the argument as the chat template prints it."""
        default = "" if self.default is ... else f" = {dump(self.default)}"
        return f"{self.name}: {self.type}{default}"


@dataclass(frozen=True)
class ToolLine:
    """A tool as a conversation offers it."""

    name: str
    description: str
    arguments: tuple[Argument, ...]

    def line(self) -> str:
        """Return the tool's line as the chat template prints it."""
        arguments = ", ".join(a.line() for a in self.arguments)
        return f"{self.name}({arguments}): {self.description}"


@dataclass
class Conversation:
    """Turns of one conversation, as (role marker, text) after the system turn."""

    system: str
    tool_lines: list[str]
    turns: list[tuple[str, str]] = field(default_factory=list)

    def user(self, text: str) -> None:
        """Add what the user says."""
        self.turns.append((USER, text))

    def say(self, text: str) -> None:
        """Add what the assistant says without a call."""
        self.turns.append((ASSISTANT, text))

    def call(self, name: str, arguments: dict[str, Any], result: str) -> None:
        """Add a tool call of the assistant and its result."""
        self.turns.append((ASSISTANT, call_text(name, arguments)))
        self.turns.append((TOOL, result))

    def slip(self, name: str, arguments: dict[str, Any], error: str) -> None:
        """Add a call that went wrong, which is not learned, and its error."""
        self.turns.append((SLIP, call_text(name, arguments)))
        self.turns.append((TOOL, error))

    def pieces(self) -> list[tuple[str, bool]]:
        """Return the text in pieces, each with whether the model writes it."""
        head = f"{self.system}\n" if self.system else ""
        tools = "\n".join(["Tools:", *self.tool_lines])
        pieces = [(f"{SYSTEM}{head}{tools}{END}", False)]
        for role, text in self.turns:
            if role in (ASSISTANT, SLIP):
                pieces += [(ASSISTANT, False), (text + END, role == ASSISTANT)]
            else:
                pieces.append((f"{role}{text}{END}", False))
        return pieces

    def text(self) -> str:
        """Return the whole text."""
        return "".join(text for text, _ in self.pieces())


def call_text(name: str, arguments: dict[str, Any]) -> str:
    """Return a tool call as the model writes it."""
    body = f'{{"name": {dump(name)}, "arguments": {dump(arguments)}}}'
    return f"<tool_call>{body}</tool_call>"


def dump(value: Any) -> str:
    """Return JSON as the chat template writes it."""
    return json.dumps(value, ensure_ascii=False)
