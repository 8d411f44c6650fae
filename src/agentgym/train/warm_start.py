"""The warm start: play the calls that training tasks need, and imitate them.

:class:`FineTuning` lets a :class:`PlanPolicy` answer the agent in place of the policy,
and fine-tunes the policy on the rollouts that succeed.
"""

import json
import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from agentgym.core.components import TOOL, Component
from agentgym.core.config import TrainingConfig
from agentgym.core.json_schema import properties
from agentgym.core.made_up import NoValueError
from agentgym.core.needs import NeededCall
from agentgym.core.policy import ChatRequest, ChatResult, Policy
from agentgym.core.task import Split, Task
from agentgym.core.trajectory import NO_REASON, ModelCall, RequestedCall, Trajectory
from agentgym.engines.base import Imitation, TrainingBatch
from agentgym.engines.registry import imitates
from agentgym.errors import ContextLengthError, ScenarioError, TrainingFailedError
from agentgym.evaluate import events
from agentgym.integrations.registry import FRAMEWORKS
from agentgym.models.folder import is_small
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import RolloutSession, worker_count
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.task_lists import make_tasks, needs_of
from agentgym.scenarios.tool_tasks.stubs import example_arguments
from agentgym.train.batch import merged
from agentgym.train.run_state import WarmStart

if TYPE_CHECKING:
    from agentgym.train.run_context import RunContext


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


TASKS = 4500
"""Number of training tasks whose calls a small model imitates, once each: new tasks
train more than repeated ones."""
REAL_TASKS = 320
"""Number of training tasks to imitate if the model is not small. Such a model can call
tools already: it only learns which tool to call, and when."""
MOST_PASSES = 3
"""Most passes through the tasks if they are fewer than ``TASKS`` or ``REAL_TASKS``."""
TASKS_PER_UPDATE = 24
LEAST_UPDATES = 30
"""Least number of updates: with few tasks, passes are added to reach this number."""
_HELD_OUT = 0.1  # share of the rollouts whose loss ends training when it stops falling
_MOST_HELD_OUT = 24
_ENOUGH = 80  # with fewer rollouts, none are held out
_LOOKS = 10
_FALL = 0.995  # a held-out loss is lower if it is below this times the lowest
_UPDATES_PER_SCORE = 2  # a score of sampled answers takes about as long as an update
_PATIENCE = 2
_WARMUP_UPDATES = 10
_LAST_UPDATES = 20  # over which the loss is reported
_MOST_REASONS = 3
_MOST_TRIALS = 16
_PLAN = "plan-{:05d}"  # a plan's rollout id


def most_tasks(config: TrainingConfig) -> int:
    """Return the upper limit on the training tasks that a warm start imitates."""
    usual = TASKS if is_small(config.model) else REAL_TASKS
    return config.warm_start_tasks or usual


class FineTuning:
    """A warm start: runs the calls that tasks need, then fine-tunes the policy on them.

    A plan is a training task with the calls that it needs. The seed determines the
    result. ``spent`` returns the used share of the warm start's time; at 1, it ends.

    Raises:
        ScenarioError: The scenario lists no needed calls.
    """

    def __init__(
        self, run: "RunContext", spent: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._run, self._spent = run, spent
        self._config, self._scenario = run.config, run.scenario
        self._engine = run.engine
        self._samples = not run.sampling.is_whole  # answers on the way of some tasks
        self._held_out_loss: float | None = None
        self._endings: set[str] = set()
        self._is_small = is_small(run.config.model)
        self._most = most_tasks(run.config)
        self._planned = tasks_to_imitate(run.scenario, run.config.seed, self._most)

    @property
    def size(self) -> int:
        """Upper limit on the rollouts to imitate."""
        return self._passes(len(self._planned)) * len(self._planned)

    def run(self) -> WarmStart:
        """Run the needed calls, and fine-tune on the successful rollouts."""
        imitation = self._engine.imitation()
        played = self._play(imitation)
        solved = [made for made in played if made.success]
        learned = [made for made in solved if self._calls_of(made)]
        failed = Counter(
            (made.reason or NO_REASON).kind for made in played if not made.success
        )
        self._report_failures(failed, len(played))
        if not learned:
            raise TrainingFailedError(
                f"train_roles = {', '.join(self._config.train_roles or ())}: none of "
                "these makes a call in the plans of training tasks, so there is "
                "nothing to imitate. Name another role, or leave --warm-start out."
            )
        enough = len(learned) >= _ENOUGH
        apart = min(_MOST_HELD_OUT, int(_HELD_OUT * len(learned))) if enough else 0
        order = Random(f"{self._config.seed}/held out").sample(learned, len(learned))
        held_out, learned = order[:apart], order[apart:]
        losses = list(self._learn(imitation, learned, held_out))
        finite = [loss for loss in losses if math.isfinite(loss)]
        if not finite:
            raise TrainingFailedError(
                "Not one update of the warm start was finite, so nothing was imitated. "
                "Use another --model, or leave --warm-start out."
            )
        last = finite[-_LAST_UPDATES:]
        return WarmStart(
            tasks=len(played),
            # an end before the first pass leaves some out
            imitated=min(len(learned), TASKS_PER_UPDATE * len(losses)),
            failed=dict(failed.most_common()),
            updates=len(finite),
            loss=sum(last) / len(last),
            held_out_loss=self._held_out_loss,
        )

    def _play(self, imitation: Imitation) -> list[Trajectory]:
        """Run the agent on the plans' tasks, with a :class:`PlanPolicy` as model."""
        named = {_PLAN.format(n): planned for n, planned in enumerate(self._planned)}
        requests = [
            RolloutRequest(name, task, train=True, group=name, step=0)
            for name, (task, _) in named.items()
        ]
        self._run.progress(events.PhaseStarted("plans", len(requests)))
        routes = self._routes()
        trained = self._engine.policy
        own = None
        if isinstance(trained, Policy) and not self._is_small:
            own = trained
        policy = PlanPolicy(imitation, named, routes, own)
        self._endings = policy.endings
        workers = worker_count(self._config)
        with (
            self._engine.sampling() if own else nullcontext(),
            TemporaryDirectory(prefix="agentgym-plans-") as folder,
            RolloutSession(self._config, policy, Path(folder), workers) as session,
        ):
            if routes is not None:
                self._try_hand_offs(session, routes)
            return session.run(requests, self._on_rollout)

    def _routes(self) -> Routes | None:
        """Create an empty record of a team's hand-offs; None for a scenario's agent."""
        from agentgym.rollout.inspection import IS_ANSWER, probed

        if self._config.agent.reference is None:
            return None
        # A resumed run has no report.
        found = self._run.plan.agent or probed(self._config)
        own = frozenset(needs_of(self._scenario, (t for t, _ in self._planned)).specs)
        addressee = FRAMEWORKS.get(self._config.framework).addressee
        names = [*found.members, *(role.name for role in found.roles)]
        answers = frozenset(n for n, fate in found.own.items() if fate == IS_ANSWER)
        return Routes(own, addressee, list(dict.fromkeys(names)), answers)

    def _try_hand_offs(self, session: RolloutSession, routes: Routes) -> None:
        """Run rollouts in which a team tries its hand-offs; ``routes`` records them."""
        [(task, _), *_] = self._planned
        for number in range(_MOST_TRIALS):
            before = {place: dict(moves) for place, moves in routes.ways.items()}
            asked = RolloutRequest(
                f"routes-{number}", task, True, f"routes-{number}", step=0
            )
            session.run([asked], lambda _: self._run.check_interrupt())
            if routes.ways == before:
                return

    def _on_rollout(self, trajectory: Trajectory) -> None:
        self._run.progress(events.RolloutDone())
        self._run.check_interrupt()

    def _report_failures(self, failed: Counter[str], total: int) -> None:
        """Report how many plans failed, by reason; raise ScenarioError if most did."""
        if not failed:
            return
        reasons = (f"{why} ({n:,})" for why, n in failed.most_common(_MOST_REASONS))
        text = (
            f"The needed calls of {failed.total():,} of {total:,} training tasks do "
            f"not solve them: {', '.join(reasons)}."
        )
        if 2 * failed.total() > total:
            raise ScenarioError(
                f"{text} A warm start would imitate them: correct "
                f"needed_calls(task) of {self._scenario.name} (in a tasks file: "
                "`expect`), which `agentgym scenarios check` plays, or leave "
                "--warm-start out."
            )
        self._run.progress(events.Warned(f"{text} The warm start leaves those out."))

    def _learn(
        self,
        imitation: Imitation,
        solved: Sequence[Trajectory],
        held_out: Sequence[Trajectory],
    ) -> Iterator[float]:
        """Fine-tune on the ``solved`` rollouts; yield the loss of each update."""
        # It ends early if sampled answers of ``held_out`` rollouts get no better; their
        # loss, which counts where none are sampled, still falls long after that.
        size = TASKS_PER_UPDATE
        passes = self._passes(len(solved))
        total = passes * math.ceil(len(solved) / size)
        self._run.progress(events.PhaseStarted("imitation", passes * len(solved)))
        best, spent, done = math.inf, 0, 0
        every, patience = max(1, total // _LOOKS), _PATIENCE
        if self._samples:
            every, patience = _UPDATES_PER_SCORE, 1
        for number in range(passes):
            order = Random(f"{self._config.seed}/{number}").sample(solved, len(solved))
            for start in range(0, len(order), size):
                gone = max(done / total, self._spent() if done else 0.0)
                if gone >= 1.0:
                    return
                some = order[start : start + size]
                share = min(1.0, (done + 1) / _WARMUP_UPDATES, 1.0 - gone)
                yield imitation.learn(self._examples(some), share)
                done += 1
                for _ in some:
                    self._run.progress(events.RolloutDone())
                self._run.check_interrupt()
                if done % every or not held_out:
                    continue
                fault = self._fault(imitation, held_out, done)
                if not math.isfinite(fault):  # the engine does not measure it
                    continue
                spent = 0 if fault < _FALL * best else spent + 1
                best = min(best, fault)
                if spent == patience:
                    return

    def _fault(
        self, imitation: Imitation, held_out: Sequence[Trajectory], updates: int
    ) -> float:
        """Return how wrong the policy is on held-out plans: answers, or the loss."""
        if self._samples:
            tasks = [self._planned[_number(made)][0] for made in held_out]
            return 1.0 - fmean(self._run.sampling.score(tasks, f"kept-{updates:03d}"))
        loss = imitation.measure(self._examples(held_out))
        if math.isfinite(loss):
            self._held_out_loss = loss
        return loss

    def _examples(self, rollouts: Sequence[Trajectory]) -> TrainingBatch:
        """Convert rollouts to a batch that trains the tokens of :meth:`_imitated`."""
        made = TrainingBatch()
        for group, rollout in enumerate(rollouts):
            calls = self._calls_of(rollout)
            made.sequences += merged(
                [(call, dict.fromkeys(self._imitated(call)), 1.0) for call in calls],
                group,
            )
        made.sequences = [each for each in made.sequences if each.trained]
        return made

    def _imitated(self, call: ModelCall) -> Sequence[int]:
        """Return the positions of the tokens in an answer that the model imitates."""
        # All outside of its reasoning. The plan has no text for a final answer: models
        # that are not small imitate its first token, which decides against a call (else
        # they would never stop calling), and also its end if it is ANSWER; of an answer
        # in a form all but its values.
        every = range(len(call.response_ids))
        components = self._engine.label(call)
        written = call.content == ANSWER or any(c.id == FORM for c in call.tool_calls)
        ends = written or (not call.tool_calls and call.content in self._endings)
        if not self._is_small and ends:
            own = components or ()
            decisions = [at for at, part in enumerate(own) if part == TOOL]
            return decisions if written else decisions[:1]
        if components is None:
            return every
        return [at for at in every if Component.REASONING not in components[at]]

    def _calls_of(self, rollout: Trajectory) -> list[ModelCall]:
        """Return a rollout's model calls of the trained roles."""
        roles = self._config.train_roles
        return [c for c in rollout.model_calls if roles is None or c.agent in roles]

    def _passes(self, count: int) -> int:
        """Return how often to train on each of ``count`` rollouts."""
        updates = math.ceil(count / TASKS_PER_UPDATE)
        least = math.ceil(LEAST_UPDATES / updates)
        return max(least, min(MOST_PASSES, self._most // count))


def _number(made: Trajectory) -> int:
    """Return the index of a rollout's plan."""
    return int(made.rollout_id.rpartition("-")[2])
