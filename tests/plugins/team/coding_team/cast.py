"""Scripted chat models that play the roles of a team: good, sloppy and broken ones."""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable

Play = Callable[[Sequence[BaseMessage]], AIMessage]
IDS = itertools.count()


class Actor(BaseChatModel):
    """Answers with a function of the messages; remembers what it was asked."""

    play: Any
    heard: list[Any]

    @property
    def _llm_type(self) -> str:
        return "actor"

    def bind_tools(self, tools: Any, **options: Any) -> Runnable[Any, Any]:  # type: ignore[override]
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **options: Any,
    ) -> ChatResult:
        self.heard.append(messages[-1].text)
        message = self.play(messages)
        return ChatResult(generations=[ChatGeneration(message=message)])


def call(tool: str, **arguments: Any) -> AIMessage:
    made = {"name": tool, "args": arguments, "id": f"call-{next(IDS)}"}
    return AIMessage("", tool_calls=[made])


def actor(play: Play) -> Actor:
    return Actor(play=play, heard=[])


def lead() -> Actor:
    """Return a supervisor that reads the facts rightly."""

    def play(messages: Sequence[BaseMessage]) -> AIMessage:
        facts = dict(
            line.split(": ", 1)
            for line in messages[-1].text.splitlines()
            if ": " in line
        )
        has_rounds = facts["Rounds left"] != "0."
        if facts["Code"] == "none.":
            return call("hand_over", to="generator")
        if has_rounds and ("failed" in facts["Tests"] or "serious" in facts["Review"]):
            return call("hand_over", to="generator")
        if "long" in facts["Code"] and facts["Review"] == "none.":
            return call("hand_over", to="reviewer")
        if facts["Tests"] == "not run.":
            return call("hand_over", to="executor")
        return call("hand_over", to="finish")

    return actor(play)


def writes(*versions: Mapping[str, str]) -> Actor:
    """Return a generator that writes one version a turn, the last again and again."""
    left = list(versions)
    waiting: list[AIMessage] = []

    def play(messages: Sequence[BaseMessage]) -> AIMessage:
        if messages[-1].type == "human":
            version = left.pop(0) if len(left) > 1 else left[0]
            waiting[:] = [
                call("write_file", path=path, text=text)
                for path, text in version.items()
            ]
        return waiting.pop(0) if waiting else AIMessage("Written.")

    return actor(play)


def in_turn(*answers: AIMessage | str | Exception) -> Actor:
    """Return a role that gives these answers in turn, then says "Done."."""
    left: Iterator[AIMessage | str | Exception] = iter(answers)

    def play(messages: Sequence[BaseMessage]) -> AIMessage:
        answer = next(left, "Done.")
        if isinstance(answer, Exception):
            raise answer
        return AIMessage(answer) if isinstance(answer, str) else answer

    return actor(play)


def tests_all() -> Actor:
    """Return an executor that runs all tests, and says what it read."""

    def play(messages: Sequence[BaseMessage]) -> AIMessage:
        if messages[-1].type == "human":
            return call("run_tests")
        return AIMessage(f"The run says: {messages[-1].text}")

    return actor(play)


def checks_all() -> Actor:
    """Return a reviewer that makes both checks of each file that it is given."""
    waiting: list[AIMessage] = []

    def play(messages: Sequence[BaseMessage]) -> AIMessage:
        if messages[-1].type == "human":
            paths = messages[-1].text.splitlines()[1].removeprefix("Review: ")
            waiting[:] = [
                call(tool, path=path)
                for path in paths.split(", ")
                for tool in ("lint", "check_security")
            ]
        return waiting.pop(0) if waiting else AIMessage("Checked.")

    return actor(play)


def silent() -> Actor:
    """Return a role that never calls a tool."""
    return actor(lambda messages: AIMessage("I would rather not."))


def broken() -> Actor:
    """Return a role whose model fails each time."""

    def play(messages: Sequence[BaseMessage]) -> AIMessage:
        raise RuntimeError("the model is down")

    return actor(play)


def endless() -> Actor:
    """Return a role that never stops calling tools."""
    return actor(lambda messages: call("read_file", path="tests/test_solution.py"))


class Hanging(Actor):
    """Never answers, as a server does that sends a few bytes from time to time."""

    async def _agenerate(self, *given: Any, **options: Any) -> ChatResult:
        await asyncio.sleep(3600)
        raise AssertionError


def hanging() -> Actor:
    """Return a role whose model neither answers nor fails."""
    return Hanging(play=None, heard=[])
