"""Task: a request with a goal that can be checked. TaskSource: a file of tasks."""

import os
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, Self
from urllib.parse import parse_qs, urlencode

from pydantic import Field

from agentgym.core.records import FrozenRecord
from agentgym.errors import UsageError

Answers = Literal["recorded", "stub", "live"]
ANSWERS: tuple[Answers, ...] = ("recorded", "stub", "live")


class Split(StrEnum):
    """The part of a scenario's tasks that a task belongs to, e.g. training or test.

    Splits share no tasks. ``OUT_OF_VOCABULARY`` is a second test split: its special
    words occur in no other split.
    """

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"
    OUT_OF_VOCABULARY = "out_of_vocabulary"


EVERY_SPLIT = "all"
"""Name for all splits together, the training split included."""


class Task(FrozenRecord):
    """One request to the agent, with a goal that can be checked.

    Attributes:
        id: Id of the task, unique in the scenario. Equal seeds give equal ids.
        family: The kind of problem, e.g. ``"read_file"``. Training chooses
            tasks by family, and results are shown per family.
        level: Difficulty: 1 (one call), 2 (several calls with rules) or 3 (open-ended).
        initial_state: The environment's initial state, as JSON values.
        goal: The goal, as JSON values for ``calculate_reward``; hidden from the agent.
        configurable: Keys of a LangGraph agent's ``config["configurable"]`` in this
            task's episodes, e.g. ``{"user_id": "7"}``.
        one_answer: Whether the model's first answer with tool calls ends the episode.
            The calls are then scored together; the model does not see their results.
    """

    id: str
    split: Split
    seed: int
    family: str
    level: int = Field(ge=1, le=3)
    instruction: str
    initial_state: dict[str, Any] = Field(default_factory=dict)
    goal: dict[str, Any] = Field(default_factory=dict)
    configurable: dict[str, Any] = Field(default_factory=dict)
    one_answer: bool = False


@dataclass(frozen=True)
class TaskSource:
    """A scenario from a tasks file: its tools, and how to answer and score calls.

    ``str(source)`` is a text such as ``tasks.jsonl?tools=app.tools%3ATOOLS``, from
    which other processes load the same scenario.

    Attributes:
        tools: For each tool or list of tools, its ``module:name``.
        answers: How tool calls are answered. ``recorded`` answers with recorded
            results, ``stub`` with made-up values; ``live`` runs the tools that
            ``allow`` names.
        check: How episodes are scored. None compares with the calls that the tasks file
            expects. ``module:name`` is a function that scores. ``posted`` takes the
            reward that a program posts. ``none`` does not score; a judge model ranks
            the attempts.
        check_command: A command that scores an episode, run in the episode's folder.
        folder: Folder from which ``module:name`` is imported.
        given_name: Name of the scenario. If empty, the file's name is used.
    """

    path: str
    tools: tuple[str, ...] = ()
    answers: Answers = "recorded"
    allow: tuple[str, ...] = ()
    check: str | None = None
    folder: str = ""
    given_name: str = ""
    check_command: str | None = None

    @classmethod
    def parse(cls, reference: str) -> Self:
        """Parse the text that ``str()`` of a source returns, or raise UsageError."""
        path, _, query = reference.partition("?")
        found = parse_qs(query, keep_blank_values=True)
        scoring = ("check", "check_command")
        known = ("tools", "answers", "allow", *scoring, "folder", "name")
        for key in found:
            if key not in known:
                raise UsageError(
                    f"{path} has no option {key!r}; known: {', '.join(known)}."
                )
        return cls(
            path=path,
            tools=tuple(found.get("tools", [])),
            answers=cls.answering(found.get("answers", ["recorded"])[-1]),
            allow=tuple(found.get("allow", [])),
            check=found.get("check", [None])[-1],
            folder=found.get("folder", [""])[-1],
            given_name=found.get("name", [""])[-1],
            check_command=found.get("check_command", [None])[-1],
        )

    @staticmethod
    def answering(word: str) -> Answers:
        """Return ``word`` if ``answers`` may have this value; else raise UsageError."""
        for each in ANSWERS:
            if each == word:
                return each
        raise UsageError(
            f"Tools can answer {', '.join(ANSWERS)}, not {word!r}: choose one."
        )

    @property
    def name(self) -> str:
        """The scenario's name, of small letters, digits and ``_``."""
        stem = os.path.basename(self.path).removesuffix(".jsonl")
        word = (self.given_name or stem).lower()
        plain = re.sub(r"[^a-z0-9]+", "_", word).strip("_")
        return plain if plain[:1].isalpha() else f"tasks_{plain}".rstrip("_")

    def __str__(self) -> str:
        options = [
            *(("tools", each) for each in self.tools),
            *([("answers", self.answers)] if self.answers != "recorded" else []),
            *(("allow", each) for each in self.allow),
            *([("check", self.check)] if self.check else []),
            *([("folder", self.folder)] if self.folder else []),
            *([("name", self.given_name)] if self.given_name else []),
            *([("check_command", self.check_command)] if self.check_command else []),
        ]
        return f"{self.path}?{urlencode(options)}" if options else self.path
