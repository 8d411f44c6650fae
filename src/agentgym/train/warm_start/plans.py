"""PlanPolicy: a policy that makes the calls that a task needs, then a final answer."""

import json
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from agentgym.core.config import TrainingConfig
from agentgym.core.json_schema import properties
from agentgym.core.made_up import NoValueError
from agentgym.core.needs import NeededCall
from agentgym.core.policy import ChatRequest, ChatResult, Policy
from agentgym.core.task import Split, Task
from agentgym.core.trajectory import RequestedCall
from agentgym.engines.base import Imitation
from agentgym.engines.registry import imitates
from agentgym.errors import ContextLengthError, ScenarioError
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.task_lists import make_tasks
from agentgym.scenarios.tool_tasks.stubs import example_arguments


class TeamMember(NamedTuple):
    """An agent of a team, with the names of the tools that its requests offer."""

    role: str
    tools: frozenset[str]


class Move(NamedTuple):
    """A hand-off: an answer that may pass control to another agent.

    Attributes:
        tool: The tool that the answer calls; empty if the answer is an agent's name.
        argument: The argument that names the agent; empty if the tool has none.
        value: The argument's value, or the answer's text.
    """

    tool: str
    argument: str
    value: str


@dataclass
class Routes:
    """Records the hand-offs between a team's agents, and the agents they reached.

    Attributes:
        own: Names of the scenario's tools, which are not hand-offs.
        addressee: Name of the tool argument that names the agent to hand over to; empty
            if the framework has none.
        roles: Names of the agents.
        answers: Names of tools whose calls are an agent's answers in a form.
        ways: For each agent, its possible hand-offs. The value of a hand-off is the
            agent that it reached, or None if it was not tried yet.
    """

    own: frozenset[str]
    addressee: str
    roles: Sequence[str]
    answers: frozenset[str] = frozenset()
    ways: dict[TeamMember, dict[Move, TeamMember | None]] = field(default_factory=dict)

    def place_of(self, request: ChatRequest) -> TeamMember:
        """Return the agent that sent the request, and record its possible hand-offs."""
        names = (tool["function"]["name"] for tool in request.tools)
        place = TeamMember(request.session.split("/")[-1], frozenset(names))
        known = self.ways.setdefault(place, {})
        for move in self._moves(request):
            known.setdefault(move, None)
        return place

    def untried(self, place: TeamMember) -> Move | None:
        """Return the hand-off with which ``place`` explores the team further.

        If ``place`` has a hand-off that was not tried yet, this is it. Otherwise it is
        the first hand-off on a known route to an agent with such a hand-off. None if no
        such route is known.
        """
        for first, at in [(None, place), *self._reached(place)]:
            for move, reached in self.ways[at].items():
                if reached is None:
                    return first or move
        return None

    def towards(self, place: TeamMember, tool: str) -> Move | None:
        """Return the first hand-off on the shortest route to an agent with a tool."""
        for first, at in self._reached(place):
            if tool in at.tools:
                return first
        return None

    def offers(self, tool: str) -> bool:
        """Return whether a known agent has a tool."""
        return any(tool in place.tools for place in self.ways)

    def arguments(self, request: ChatRequest, move: Move, text: str) -> dict[str, Any]:
        """Return the arguments of the call that makes a hand-off."""
        functions = (tool["function"] for tool in request.tools)
        function = next(each for each in functions if each["name"] == move.tool)
        schema = function.get("parameters") or {}
        made = example_arguments(schema)
        made |= {name: text for name in made if _is_text(schema, name)}
        return made | ({move.argument: move.value} if move.argument else {})

    def _reached(self, place: TeamMember) -> Iterator[tuple[Move, TeamMember]]:
        """Yield the agents that known hand-offs reach from ``place``, nearest first."""
        seen = {place}
        waiting = deque((move, to) for move, to in self.ways[place].items() if to)
        while waiting:
            first, at = waiting.popleft()
            if at in seen:
                continue
            seen.add(at)
            yield first, at
            waiting.extend((first, to) for to in self.ways[at].values() if to)

    def _moves(self, request: ChatRequest) -> Iterator[Move]:
        for tool in request.tools:
            function = tool["function"]
            if function["name"] not in self.own:
                yield from self._calls(function)
        if not request.tools:
            said = json.dumps(request.messages[-1], ensure_ascii=False)
            named = [role for role in self.roles if role in said]
            if len(named) > 1:
                yield from (Move("", "", role) for role in named)

    def _calls(self, function: Mapping[str, Any]) -> Iterator[Move]:
        name = function["name"]
        named = properties(function.get("parameters"))
        if self.addressee in named:
            text = " ".join((function.get("description") or "").split())
            roles = [role for role in self.roles if role in text]
            yield from (Move(name, self.addressee, role) for role in roles)
            return
        for argument, schema in named.items():
            if choices := schema.get("enum"):
                yield from (Move(name, argument, str(choice)) for choice in choices)
                return
        yield Move(name, "", "")


def _is_text(schema: Mapping[str, Any], name: str) -> bool:
    part = properties(schema).get(name, {})
    constrained = {"enum", "format", "pattern", "const", "maxLength"} & part.keys()
    return part.get("type") == "string" and not constrained


ANSWER = "Done."
"""The final answer after all calls, unless the trained policy writes its own."""

FORM = "call_answer"
"""Id of the call that is a final answer in a form."""
_OWN_TOKENS = 8
"""Most tokens of the policy's own final answer: only its first token is imitated."""
_SEED = 500_000
"""Offset of the seed: a warm start uses other tasks than training begins with."""
_MOST_MOVES = 32  # hand-offs in one rollout
_LEAST_DRAWN = 2_000
"""Least number of training tasks to search if too few tasks list needed calls."""
_LOOKED_AT = 100
"""Number of training tasks to look at; at least one must list its needed calls."""
Planned = tuple[Task, Sequence[NeededCall]]
"""A plan: a task with the calls that it needs."""


def calls_known(scenario: Scenario, seed: int) -> bool:
    """Return whether the scenario lists the needed calls of some training tasks."""
    tasks = make_tasks(scenario, Split.TRAIN, seed, _LOOKED_AT)
    return any(scenario.needed_calls(task) is not None for task in tasks)


def can_imitate(config: TrainingConfig, scenario: Scenario) -> bool:
    """Return whether a run's engine and scenario support ``warm_start``."""
    return imitates(config) and calls_known(scenario, config.seed)


def check_calls_known(scenario: Scenario, seed: int) -> None:
    """Raise ScenarioError if a scenario lists no calls to imitate."""
    if not calls_known(scenario, seed):
        raise ScenarioError(
            f"A warm start imitates the calls that tasks need, and {scenario.name} "
            "does not list them: write needed_calls(task) of the scenario (in a tasks "
            "file: `expect` of its lines), or leave --warm-start out."
        )


def tasks_to_imitate(scenario: Scenario, seed: int, count: int) -> list[Planned]:
    """Return up to ``count`` training tasks, each with the calls that it needs."""
    check_calls_known(scenario, seed)
    found: list[Planned] = []
    for drawn in (count, max(10 * count, _LEAST_DRAWN)):  # many may have no plan
        tasks = make_tasks(scenario, Split.TRAIN, seed * 1_000_003 + _SEED, drawn)
        plans = ((task, scenario.needed_calls(task)) for task in tasks)
        found = [(task, plan) for task, plan in plans if plan is not None]
        if len(found) >= min(count, len(tasks)):
            break
    if not found:
        raise ScenarioError(
            f"None of {len(tasks):,} training tasks of {scenario.name} lists the calls "
            "that it needs, so a warm start has nothing to imitate: write "
            "needed_calls(task) of the scenario (in a tasks file: `expect` of its "
            "lines), or leave --warm-start out."
        )
    return found[:count]


@dataclass
class _Progress:
    """The state of one attempt at a plan (a task with the calls that it needs)."""

    made: int = 0  # or skipped, because no agent has the tool
    last: RequestedCall | None = None
    before: tuple[TeamMember, Move] | None = None
    moves: int = 0


@dataclass(eq=False)
class PlanPolicy(Policy):
    """A policy that makes the needed calls of a rollout's task, in order.

    Each answer has one call, so that its result comes before the next call. After all
    calls comes a final answer. A task that ends with its first answer (``one_answer``)
    gets all calls in this answer.

    The agents of a team share the rollout's plan (the needed calls). An agent that has
    the next call's tool makes the call. Any other agent hands over, on a route to an
    agent that has the tool; earlier rollouts without a plan explore these routes. A
    call whose tool no agent has is skipped: the agent's own code makes the call.

    Attributes:
        imitation: Converts the answers to the policy's tokens.
        plans: Tasks and their needed calls, by rollout id. Rollouts without an entry
            explore hand-offs.
        routes: Records a team's hand-offs; None without the user's own agent.
        own: The trained policy, which writes the first words of the final answer; None
            writes ``ANSWER`` instead.
        endings: The first words of final answers that ``own`` has written.
    """

    imitation: Imitation
    plans: Mapping[str, Planned]
    routes: Routes | None = None
    own: Policy | None = None
    endings: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._progress: dict[str, _Progress] = defaultdict(_Progress)

    @property
    def model_name(self) -> str:
        """The model name, always ``plans``."""
        return "plans"

    @property
    def failure(self) -> str:
        """Why the policy cannot answer any more; empty while it can."""
        return self.own.failure if self.own else ""

    async def release(self) -> None:
        """Close the connections that the policy opened in the current event loop."""
        if self.own is not None:
            await self.own.release()

    async def chat(self, request: ChatRequest) -> ChatResult:
        """Answer with the next call of the rollout's plan, or with text at its end."""
        rollout, attempt, *_ = request.session.split("/")
        done = self._progress[f"{rollout}/{attempt}"]
        place = None if self.routes is None else self.routes.place_of(request)
        if self.routes is not None and place and done.before is not None:
            start, move = done.before
            self.routes.ways[start][move] = place
        done.before = None
        if request.wants_call and done.last and _is_open(done.last, request):
            return self.imitation.write(request, "", [done.last])  # asked once more
        task, plan = self.planned(rollout, attempt)
        tool = self._next_tool(done, plan)
        offered = {each["function"]["name"] for each in request.tools}
        if tool in offered and task is not None and task.one_answer:
            return self._all_calls(request, done, plan)
        if tool in offered:
            arguments = dict(plan[done.made].arguments)
            done.made += 1
            return self._call(request, done, str(tool), arguments)
        if self.routes is None or place is None or done.moves >= _MOST_MOVES:
            return await self._end(request)
        if task is None:
            move_on = self.routes.untried(place)
        else:
            move_on = self.routes.towards(place, tool) if tool else None
        if move_on is None:
            return await self._end(request)
        done.before = (place, move_on)
        done.moves += 1
        if not move_on.tool:
            return self.imitation.write(request, move_on.value, ())
        text = "" if task is None else task.instruction
        given = self.routes.arguments(request, move_on, text)
        return self._call(request, done, move_on.tool, given)

    def planned(
        self, rollout: str, attempt: str
    ) -> tuple[Task | None, Sequence[NeededCall]]:
        """Return an attempt's task and needed calls; None without a plan."""
        return self.plans.get(rollout, (None, ()))

    async def _end(self, request: ChatRequest) -> ChatResult:
        """Answer in the form that is asked for, with made-up values; else with text."""
        # The policy's own first words; ANSWER if they are e.g. a special token.
        if (form := self._form(request)) is not None:
            with suppress(ContextLengthError):  # too long: not imitated
                return self.imitation.write(request, "", [form])
        text = ANSWER
        asks_text = request.tools and not (request.wants_call or request.form)
        if self.own is not None and asks_text:
            asked = replace(request, tools=[], max_tokens=_OWN_TOKENS, session="")
            words = ((await self.own.chat(asked)).content or "").strip()
            if words[:1].isalpha():
                text = words
                self.endings.add(text)
        return self.imitation.write(request, text, ())

    def _form(self, request: ChatRequest) -> RequestedCall | None:
        """Return the answer in a form that is offered with tools; None if none is.

        A form that is offered alone may be a step of the agent, e.g. its next speaker.
        """
        answers = self.routes.answers if self.routes is not None else frozenset()
        functions = [each["function"] for each in request.tools]
        for function in functions if request.wants_call and functions[1:] else ():
            if (name := function["name"]) == request.form or name in answers:
                with suppress(NoValueError):
                    made = example_arguments(function.get("parameters") or {})
                    return RequestedCall(id=FORM, name=name, arguments=json.dumps(made))
        return None

    def _next_tool(self, done: _Progress, plan: Sequence[NeededCall]) -> str | None:
        while done.made < len(plan):
            tool = plan[done.made].tool
            if self.routes is None or self.routes.offers(tool):
                return tool
            done.made += 1
        return None

    def _all_calls(
        self, request: ChatRequest, done: _Progress, plan: Sequence[NeededCall]
    ) -> ChatResult:
        """Answer with all calls of a plan, for a task that ends with one answer."""
        calls = [
            requested(number, need.tool, dict(need.arguments))
            for number, need in enumerate(plan)
        ]
        done.made = len(plan)
        return self.imitation.write(request, "", calls)

    def _call(
        self, request: ChatRequest, done: _Progress, tool: str, given: dict[str, Any]
    ) -> ChatResult:
        done.last = requested(done.made + done.moves, tool, given)
        return self.imitation.write(request, "", [done.last])


def requested(number: int, tool: str, given: dict[str, Any]) -> RequestedCall:
    """Return a tool call as a model would have asked for it."""
    arguments = json.dumps(given, ensure_ascii=False)
    return RequestedCall(id=f"call_{number:05d}", name=tool, arguments=arguments)


def _is_open(call: RequestedCall, request: ChatRequest) -> bool:
    """Return whether a call has no result yet, while its tool is still offered."""
    offered = {each["function"]["name"] for each in request.tools}
    answered = {message.get("tool_call_id") for message in request.messages}
    return call.name in offered and call.id not in answered
