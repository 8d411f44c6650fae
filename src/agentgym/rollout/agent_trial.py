"""Try an agent with a scripted model; compare the offered tools with the tasks."""

import json
import re
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from agentgym.core.json_schema import properties
from agentgym.core.made_up import NoValueError
from agentgym.core.needs import NeededCall
from agentgym.core.openai import DEFAULT_AGENT
from agentgym.core.policy import ChatRequest
from agentgym.core.task import Task
from agentgym.core.trajectory import (
    AGENT_CRASHED,
    ENDED,
    GOAL_NOT_REACHED,
    ModelCall,
    RolloutStatus,
    ToolCall,
    Trajectory,
)
from agentgym.engines.scripted import Reply
from agentgym.models.forms import answers_any_object
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.tool_tasks.lines import arguments_fault, by_fault
from agentgym.scenarios.tool_tasks.stubs import example_arguments
from agentgym.scenarios.tool_tasks.unseen import UnseenSpec

_Call = tuple[str, str]  # a tool, and the agent that the call names, if any
# Names of tools that are called last, since they may end an agent's turn.
_MAY_PASS = re.compile("transfer|hand_?off|delegate|answer", re.IGNORECASE)
_EVERY = 1_000_000
_MOST_SHOWN = 3
_MEANT = [["s"], *map(list, "0123456789")]  # get_orders is not a slip of get_order


class TrialCalls:
    """A scripted model that calls each offered tool once, then gives a final answer.

    A hand-off is a call that passes control to another agent. Each answer has one call,
    because frameworks refuse some combinations, e.g. a hand-off and a second call.
    Tools that were not called in one attempt are called in the next. Hand-offs are
    repeated in each attempt, to reach the tools of all agents.

    To get an answer with a JSON schema, some frameworks offer a single tool that does
    not exist, and require a call of it. The answer may decide which agent is next, so
    enum and boolean values change with each answer. For the same reason, a request
    without tools whose last message names several agents is answered with one of the
    names, a different name each time.

    Args:
        most_turns: Maximum number of model calls of one agent in an attempt.
        addressee: Name of the tool argument whose value names another agent.
        right: Arguments of the calls that the task needs, by tool; the others are made
            up.

    Attributes:
        roles: Names of the agents that are known so far.
        passing: Names of tools that passed control to another agent.
        answered: Names of tools whose calls were answered.
        answers: Names of the tools that stand for answers with a JSON schema.
        has_called: Whether the last attempt had a call, or an answer that names one.
    """

    def __init__(
        self, most_turns: int, *, addressee: str, right: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self._most_calls = most_turns - 1
        self._addressee = addressee
        self._right = right
        self._attempts = 0
        self._forms = 0
        self._most_choices = 0
        self._named: Counter[str] = Counter()
        self._offered: set[_Call] = set()
        self._made: set[_Call] = set()
        self._made_now: set[_Call] = set()
        self._turns: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.roles: dict[str, None] = {}
        self.passing: set[str] = set()
        self.answered: set[str] = set()
        self.answers: set[str] = set()
        self.has_called = False

    @property
    def left(self) -> int:
        """Number of offered calls, or choices of an answer, that are not tried yet."""
        choices = max(0, self._most_choices - self._attempts)
        return len(self._offered - self._made) + choices

    @property
    def never_made(self) -> list[str]:
        """Names of tools that were offered, and never called."""
        return sorted({name for name, _ in self._offered - self._made})

    def begin(self, *, has_crashed: bool = False) -> None:
        """Prepare for the next attempt, in which hand-offs are repeated."""
        with self._lock:
            if has_crashed:
                self._made -= self._made_now
                self._right = {}
            self.has_called = False
            self._made_now.clear()
            self._turns.clear()
            self._forms = self._attempts  # begin with other values in each attempt
            self._attempts += 1

    def learn(self, made: Trajectory, passing: Iterable[str]) -> None:
        """Learn from an attempt which tools pass control on, and which are forms."""
        steps = made.steps
        self.answered |= {x.name for x in made.get_tool_calls() if x.was_answered}
        self.passing |= set(passing)
        spoke = ""
        for step, then in pairwise(steps):
            spoke = step.agent if isinstance(step, ModelCall) else spoke
            if isinstance(step, ToolCall) and isinstance(then, ModelCall):
                is_passed = then.agent != spoke and not step.was_answered
                self.passing |= {step.name} if is_passed else set()
        ended = made.reason in (None, GOAL_NOT_REACHED)
        if ended and steps and isinstance(last := steps[-1], ToolCall):
            is_form = made.model_calls[-1].wants_call and not last.was_answered
            self.answers |= {last.name} if is_form else set()
        self.answers -= self.answered
        self.passing -= self.answered | self.answers

    def __call__(self, request: ChatRequest) -> Reply:
        """Return the scripted answer to one request."""
        functions = [tool["function"] for tool in request.tools]
        names = [function["name"] for function in functions]
        with self._lock:
            if (role := request.session.split("/")[-1]) != DEFAULT_AGENT:
                self.roles.setdefault(role)
            is_form = request.wants_call and len(names) == 1
            if is_form and names[0] not in self.answered:
                self.answers.add(names[0])
                self.has_called = True
                return Reply(calls=[(names[0], self._in_a_form(functions[0]))])
            if request.form:
                self.answers.add(request.form)  # offered together with other tools
            if not names:
                name = self._name_of(request)
                self.has_called |= bool(name)
                return Reply(name or "Done.")
            calls = {
                (function["name"], to): function
                for function in functions
                for to in self._addressees(function)
            }
            self._offered.update(calls)
            asker = json.dumps(sorted(names))
            self._turns[asker] += 1
            call = next(self._next_of(list(calls), forced=request.wants_call), None)
            if call is None or self._turns[asker] > self._most_calls:
                return Reply("Done.")
            self._made.add(call)
            self._made_now.add(call)
            self.has_called = True
            return Reply(calls=[(call[0], self._arguments(calls[call], call[1]))])

    def _next_of(self, calls: list[_Call], *, forced: bool) -> Iterator[_Call]:
        """Yield the calls that may be made next, the best first, hand-offs last."""
        ordered = sorted(calls, key=self._passes)
        yield from (call for call in ordered if call not in self._made)
        passing = [call for call in calls if self._passes(call)]
        yield from (call for call in passing if call not in self._made_now)
        if forced:
            yield from sorted(calls, key=lambda call: call[0] not in self.answers)

    def _passes(self, call: _Call) -> bool:
        is_known = call[0] in self.passing | self.answers
        return is_known or bool(call[1]) or bool(_MAY_PASS.search(call[0]))

    def _name_of(self, request: ChatRequest) -> str:
        """Return the name of one agent if the last message names several; else ""."""
        text = json.dumps(request.messages[-1], ensure_ascii=False)
        named = [role for role in self.roles if role in text]
        if len(named) < 2:
            return ""
        chosen = min(named, key=self._named.__getitem__)
        self._named[chosen] += 1
        return chosen

    def _in_a_form(self, function: Mapping[str, Any]) -> dict[str, Any]:
        named = properties(function.get("parameters"))
        chosen = {
            name: choices[self._forms % len(choices)]
            for name, schema in named.items()
            if (choices := schema.get("enum"))
        }
        longest = max((len(named[name]["enum"]) for name in chosen), default=0)
        self._most_choices = max(self._most_choices, longest)
        made = _with_booleans(self._arguments(function, ""), bool(self._forms % 2))
        self._forms += 1
        return {**made, **chosen}

    def _addressees(self, function: Mapping[str, Any]) -> list[str]:
        if self._addressee not in properties(function.get("parameters")):
            return [""]
        message = " ".join((function.get("description") or "").split())
        return [role for role in self.roles if role in message] or [""]

    def _arguments(self, function: Mapping[str, Any], to: str) -> dict[str, Any]:
        again = str(self._attempts) if self._attempts > 1 else ""  # other values
        try:
            key = f"{function['name']}{again}"
            made = example_arguments(function.get("parameters") or {}, key)
        except NoValueError:  # the call is then refused, in a way that the trial shows
            made = {}
        made |= self._right.get(function["name"], {})
        return made | {self._addressee: to} if to else made


def _with_booleans(value: Any, chosen: bool) -> Any:
    """Return a value with all booleans, at any depth, set to ``chosen``."""
    if isinstance(value, bool):
        return chosen
    if isinstance(value, dict):
        return {name: _with_booleans(each, chosen) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_booleans(each, chosen) for each in value]
    return value


def offered_tools(trials: list[Trajectory]) -> dict[str, dict[str, Any]]:
    """Return the tools offered to the model, as OpenAI functions, by name."""
    return {
        str(tool["function"]["name"]): tool["function"]
        for made in trials
        for call in made.model_calls
        for tool in call.tools
        if isinstance(tool.get("function"), dict)
    }


def is_lost(made: Trajectory) -> bool:
    """Return whether a trial was dropped, or stopped to wait for a person."""
    waits = made.reason is not None and made.reason.kind == "interrupt"
    return waits or made.status is RolloutStatus.DROPPED


def has_crashed(made: Trajectory) -> bool:
    """Return whether the agent's own code crashed after an answer of its model."""
    return made.reason is not None and made.reason.kind == AGENT_CRASHED


def is_unfit(made: Trajectory) -> bool:
    """Return whether a trial ended because the agent's code refused a made-up object.

    The request asked for a JSON object without a schema, so the scripted model cannot
    know the fields that the code needs.
    """
    calls = made.model_calls
    is_wrong = made.reason is not None and made.reason.kind == "wrong form"
    return is_wrong and bool(calls) and answers_any_object(calls[-1])


def calls_replaced(trials: list[Trajectory]) -> list[str]:
    """Return the names of tools that were called, but have no recorded outcome."""
    names: dict[str, None] = {}
    for made in trials:
        ended = {call.id for call in made.get_tool_calls()}
        asked = [call for each in made.model_calls for call in each.tool_calls]
        names |= {call.name: None for call in asked if call.id not in ended}
    return list(names)


def calls_ending(trials: list[Trajectory]) -> list[str]:
    """Return the names of tools whose call ended the agent, without running."""
    ended = [t.get_tool_calls()[-1] for t in trials if t.get_tool_calls()]
    return list(dict.fromkeys(call.name for call in ended if call.result == ENDED))


def untried(
    scenario: Scenario, learned: Mapping[str, UnseenSpec], tried: Collection[Task]
) -> Task | None:
    """Return a task, not ``tried``, whose expected call no offered tool takes."""
    expected = list(_expected(scenario, learned))
    sought = {call.tool for task, call in expected if task in tried}
    for task, call in expected:
        is_new = not learned[call.tool].is_known and call.tool not in sought
        if task not in tried and (is_new or _fault(learned, call)):
            return task
    return None


def _fault(learned: Mapping[str, UnseenSpec], call: NeededCall) -> str:
    spec = learned[call.tool]
    is_judged = spec.is_known and not call.by_outcome
    return arguments_fault(spec, dict(call.arguments)) if is_judged else ""


def misfits(scenario: Scenario, learned: Mapping[str, UnseenSpec]) -> str:
    """Return a sentence on expected calls that the offered tools refuse; "" if none."""
    faults: dict[str, list[str]] = {}
    for task, call in _expected(scenario, learned):
        if fault := _fault(learned, call):
            fault += "." * (fault[-1] != "?")
            faults.setdefault(fault, []).append(task.id)
    if not faults:
        return ""
    wrong = by_fault(faults)
    more = f" … and {len(wrong) - _MOST_SHOWN} more." * (len(wrong) > _MOST_SHOWN)
    listed = " ".join(wrong[:_MOST_SHOWN])
    if "is a required property" in listed:
        more += ' Where any value is right, write {"anything": true}.'
    return f"Tasks expect calls that its tools' schemas do not allow. {listed}{more}"


def misspelt(
    scenario: Scenario,
    learned: Mapping[str, UnseenSpec],
    offered: Mapping[str, Mapping[str, Any]],
) -> str:
    """Return a sentence on a slip of an offered tool's name in the tasks, or ""."""
    for task, call in _expected(scenario, learned):
        for name in () if call.tool in offered else offered:
            one, other = Counter(name), Counter(call.tool)
            letters = [*(one - other).elements(), *(other - one).elements()]
            if len(letters) > 1 or letters in _MEANT:
                continue
            spec = UnseenSpec(name)
            spec.learn(offered[name])
            if spec.is_known and not arguments_fault(spec, dict(call.arguments)):
                return (
                    f"{task.id}: no tool is named {call.tool!r}. Did you mean {name!r}?"
                    " If it is another tool, which the agent offers only after other "
                    "answers, go on with --yes (or --set yes=true)."
                )
    return ""


def _expected(
    scenario: Scenario, learned: Mapping[str, UnseenSpec]
) -> Iterator[tuple[Task, NeededCall]]:
    splits = scenario.splits if learned else ()  # only a tasks file has such tools
    for task in (t for s in splits for t in scenario.tasks(s, 0, _EVERY)):
        for need in scenario.needed_calls(task) or ():
            found = (call for call in (need, *need.instead) if call.tool in learned)
            yield from ((task, call) for call in found)
