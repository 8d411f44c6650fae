"""Agents without a model, and functions to play an episode with them in this process.

A scenario must not reward an agent that does nothing, nor one that calls every tool: a
policy would learn this behaviour instead of the task.
"""

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from agentgym.core.background import in_background
from agentgym.core.made_up import NoValueError, made_up
from agentgym.core.task import Task
from agentgym.core.tools import ToolSpec
from agentgym.core.trajectory import (
    ModelCall,
    RequestedCall,
    Reward,
    RolloutStatus,
    Trajectory,
)
from agentgym.errors import ScenarioError
from agentgym.integrations.episode import Episode
from agentgym.integrations.run import Drive, Ending, ScenarioEnding, run_episode
from agentgym.scenarios.base import Environment, Scenario
from agentgym.scenarios.task_lists import tools_of

_PLAIN_WORDS = ("main", "a", "test", "1001", "x")
_ANSWER = "Done."
_QUOTED = r"\"([^\"]+)\"|'([^']+)'"
_NUMBER = r"(?<![\w.])\d{1,9}(?![\w.]*\w)"


class Call(NamedTuple):
    """A tool call to make; its arguments are JSON values."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class DoNothing:
    """An agent that answers at once, without a tool call."""

    name: str = "do-nothing"

    def calls(self, task: Task, specs: Sequence[ToolSpec]) -> list[Call]:
        """Return an empty list."""
        return []


@dataclass(frozen=True)
class CallEverything:
    """An agent that calls every tool, with meaningless arguments that fit the schema.

    Attributes:
        seed: Seed of the arguments and of the order of calls; with 0, the calls have
            the order of the tools.
        from_instruction: Whether arguments are words and numbers of the instruction.
        rounds: Number of calls of each tool, each with new arguments.
    """

    seed: int = 0
    from_instruction: bool = False
    rounds: int = 1
    name: str = "call-everything"

    def calls(self, task: Task, specs: Sequence[ToolSpec]) -> list[Call]:
        """Return the calls to make in a task: one per tool and round."""
        rng = Random(f"{self.seed}/{self.from_instruction}/{task.id}")
        pool = _Pool.of(task.instruction if self.from_instruction else "")
        made: list[Call] = []
        for _ in range(self.rounds):
            order = list(specs)
            if self.seed:
                rng.shuffle(order)
            made += [call for spec in order if (call := _call(spec, pool, rng))]
        return made


def _call(spec: ToolSpec, pool: "_Pool", rng: Random) -> Call | None:
    """Return a call with random arguments, or None if none are found that fit."""
    try:
        return Call(
            spec.name,
            made_up(
                spec.parameters,
                str(rng.random()),
                optional=0.5,
                texts=pool.texts,
                numbers=pool.numbers,
                accepts=spec.accepts,
            ),
        )
    except NoValueError:
        return None


CALL_EVERYTHING = (
    CallEverything(),
    CallEverything(seed=1),
    CallEverything(seed=1, from_instruction=True),
    CallEverything(seed=2, from_instruction=True),
    CallEverything(seed=3, from_instruction=True, rounds=2),
)
"""The variants of :class:`CallEverything` with which a scenario is tested."""


def scripted(calls: Sequence[Call]) -> Drive:
    """Return an agent that makes ``calls`` in one turn and then answers."""

    async def drive(episode: Episode) -> str:
        requested = [
            RequestedCall(id=f"call-{n}", name=name, arguments=json.dumps(arguments))
            for n, (name, arguments) in enumerate(calls)
        ]
        if requested:
            episode.begin_turn()
            asked = ModelCall(tool_calls=requested, finish_reason="tool_calls")
            episode.steps.append(asked)
        for request in requested:
            await episode.use_tool(request.name, request.arguments, call_id=request.id)
        more: str | None = ""
        while more is not None:
            episode.begin_turn()
            episode.steps.append(ModelCall(content=_ANSWER))
            more = episode.user_reply(_ANSWER)
        return _ANSWER

    return drive


async def attempt(
    scenario: Scenario,
    task: Task,
    calls: Sequence[Call],
    *,
    environment: Environment | None = None,
    ending: Ending | None = None,
) -> Trajectory:
    """Play an episode of an agent that makes ``calls`` and answers; score the episode.

    All calls are made in one turn. Without an ``environment``, a new one is created;
    without an ``ending``, the scenario scores the episode, as in training. If the
    scenario's code raised an exception, the trajectory is dropped, with a reason.
    """
    return await run_episode(
        Episode(
            task,
            rollout_id=f"trivial-{task.id}",
            scenario=scenario.name,
            max_turns=scenario.max_turns,
        ),
        scripted(calls),
        create_environment=lambda task: (
            scenario.create_environment(task) if environment is None else environment
        ),
        ending=ending or ScenarioEnding(scenario),
    )


async def play(
    scenario: Scenario,
    task: Task,
    calls: Sequence[Call],
    *,
    environment: Environment | None = None,
) -> tuple[Trajectory, Reward]:
    """Play an episode like :func:`attempt`; return the trajectory and its score."""
    made = await attempt(scenario, task, calls, environment=environment)
    if made.status is RolloutStatus.DROPPED:
        raise ScenarioError(f"Task {task.id} could not be scored: {made.reason}.")
    return made, made.score


def run_trivial(
    scenario: Scenario, task: Task, agent: DoNothing | CallEverything
) -> Trajectory:
    """Play and score one episode of an agent without a model, from sync code."""
    calls = agent.calls(task, tools_of(scenario, task))
    return in_background(attempt(scenario, task, calls))


class _Pool(NamedTuple):
    """Values from which arguments are chosen at random."""

    texts: list[str]
    numbers: list[int]

    @classmethod
    def of(cls, text: str) -> "_Pool":
        """Collect the words, word pairs, quotations and numbers of a text."""
        words = [word.strip(".,;:!?'\"()") for word in text.split()]
        words = [word for word in words if word]
        pairs = [" ".join(pair) for pair in itertools.pairwise(words)]
        quoted = [double or single for double, single in re.findall(_QUOTED, text)]
        numbers = [int(n) for n in re.findall(_NUMBER, text)]
        return cls(
            [*words, *pairs, *quoted] or list(_PLAIN_WORDS), numbers or [1, 2, 10]
        )
