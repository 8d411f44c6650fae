"""Sample single calls at places along tasks' solutions, and reward them at once.

Most calls of a long episode cannot be compared: attempts part at the first difference.
Attempts at one call start from the same place, so that they can (PivotRL,
arXiv:2603.21383). The user's agent runs as in a whole episode, and its tools answer:
only who answers the agent differs from call to call.
"""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

from agentgym.core.config import TrainingConfig
from agentgym.core.needs import NeededCall
from agentgym.core.policy import ChatRequest, ChatResult, Policy
from agentgym.core.task import Split, Task
from agentgym.core.tools import (
    MALFORMED_CALL,
    ToolSpec,
    parse_arguments,
    same_arguments,
)
from agentgym.core.trajectory import (
    GOAL_NOT_REACHED,
    PLANNED,
    ModelCall,
    Reason,
    RequestedCall,
    RolloutStatus,
    ToolCall,
    Trajectory,
)
from agentgym.engines.base import Imitation
from agentgym.engines.registry import engine_name, imitates
from agentgym.errors import EngineError, UsageError
from agentgym.evaluate import events
from agentgym.evaluate.numbers import percent
from agentgym.evaluate.ranker import is_judged
from agentgym.models.folder import is_small
from agentgym.plugins.calls.group import RolloutSettings
from agentgym.rollout.runner import RolloutRequest
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.task_lists import make_tasks, needs_of
from agentgym.train.run_context import RunContext
from agentgym.train.sampling import Sampling
from agentgym.train.warm_start import (
    PlanPolicy,
    calls_known,
    requested,
)

# Credit of a call that can be read; that names an offered tool; that names the right
# tool; at most for its arguments, by their share that is right; if all of it is right.
#
# A bare right-or-wrong reward makes a small model answer in words: where words are due
# they are often right, where a call is due it is mostly wrong.
READABLE, OFFERED, RIGHT_TOOL, ARGUMENTS, RIGHT = 0.05, 0.1, 0.3, 0.4, 1.0
Specs = Mapping[str, ToolSpec]


def answer_credit(
    answer: ModelCall,
    made: Sequence[ToolCall],
    due: Sequence[NeededCall],
    specs: Specs,
    *,
    at_once: bool,
    succeeded: bool,
) -> float:
    """Return the credit of an answer, 0..1.

    Args:
        answer: The policy's answer.
        made: Its tool calls, with their outcomes.
        due: The needed calls that were left. Without any, an answer in words is right.
        specs: The tools of the task, by name.
        at_once: Whether the answer must make all calls that are due, not only the next.
        succeeded: Whether the episode succeeded after the other calls that were due.
            Then arguments that have no single right value are right.
    """
    if not due:
        return RIGHT if answer.content and not answer.tool_calls else 0.0
    left, earned = list(due), 0.0
    for call in made:
        credits = [_credit(call, need, specs, succeeded) for need in left]
        best = max(range(len(left)), key=credits.__getitem__, default=None)
        if best is None:
            continue
        # Another call than the next one is right only if the episode succeeds.
        early = best > 0 and not at_once and not succeeded
        earned += min(credits[best], RIGHT_TOOL) if early else credits[best]
        if credits[best] == RIGHT:
            del left[best]
    return earned / max(len(due) if at_once else 1, len(answer.tool_calls), len(made))


def _credit(call: ToolCall, need: NeededCall, specs: Specs, succeeded: bool) -> float:
    """Return the credit of a call where ``need`` is due."""
    spec = specs.get(call.name)
    if need.accepts(call, spec, succeeded):
        return RIGHT
    if call.name == MALFORMED_CALL:
        return 0.0
    if call.name not in need.tools:
        return OFFERED if spec is not None else READABLE
    given, wanted = call.arguments or {}, need.arguments
    names = {*given, *wanted} - need.by_outcome
    right = sum(
        same_arguments(spec, given, wanted, without=frozenset({*given, *wanted} - {n}))
        for n in names
    )
    return RIGHT_TOOL + ARGUMENTS * right / max(1, len(names))


def sampled_step(rollout: Trajectory) -> tuple[ModelCall, list[ToolCall]] | None:
    """Return a rollout's sampled answer with its tool calls; None without one."""
    answer: ModelCall | None = None
    made: list[ToolCall] = []
    for step in rollout.steps:
        if isinstance(step, ModelCall):
            if answer is not None:
                break
            answer = None if step.is_planned else step
        elif answer is not None:
            made.append(step)
    return None if answer is None else (answer, made)


# Share of right answers after which rollouts are whole episodes again.
ENOUGH_RIGHT = 0.9
# Weight of the newest step in that share: a step has few tasks.
_NEWEST = 0.3
# Number of steps for which a task that comes back has the same place.
_SAME_PLACE = 8
# Most tokens of an answer in words: its first one decides against a call.
_WORDS_TOKENS = 8
# An answer ends at this multiple of the right one's tokens, plus this number.
_LONGER = 1.5, 16
# Number of training tasks whose calls are timed, as many attempts as in a step.
_TIMED = 4
# Time of a step of single calls, relative to the usual assumption that an update takes
# as long as its rollouts: an answer's prompt is as long as an episode's.
_UPDATE = 1.5
_PART = "call"  # the name of the credit in a reward's parts
UNREACHED = Reason(
    kind="place not reached", detail="the agent did not ask for the call there"
)


class CallPlace(NamedTuple):
    """A place on the way of a task's solution: after its first ``at`` calls."""

    task: Task
    plan: Sequence[NeededCall]
    at: int

    @property
    def due(self) -> Sequence[NeededCall]:
        """The needed calls that are left."""
        return self.plan[self.at :]


@dataclass(eq=False, kw_only=True)
class CallPolicy(PlanPolicy):
    """Plays each rollout's solution up to its place, and there asks the policy once.

    After that answer it plays the rest of the solution, if the answer made a part of
    it, and else ends. Rollouts without a place are the policy's own.

    Attributes:
        trained: The policy under training.
        places: The places, by rollout id.
    """

    plans: Mapping[str, tuple[Task, Sequence[NeededCall]]] = field(init=False)
    trained: Policy
    places: Mapping[str, CallPlace] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.begin({})

    def begin(self, places: Mapping[str, CallPlace]) -> None:
        """Forget earlier rollouts; play those of ``places`` up to their places."""
        super().__post_init__()
        self.places = places
        self.plans = {name: (place.task, place.plan) for name, place in places.items()}
        self._left: dict[str, Sequence[NeededCall]] = {}

    @property
    def model_name(self) -> str:
        """The model name of the policy under training."""
        return self.trained.model_name

    @property
    def failure(self) -> str:
        """Why the policy cannot answer any more; empty while it can."""
        return self.trained.failure

    @property
    def gives_forms(self) -> bool:  # type: ignore[override]
        """Whether answers in a JSON schema are requested as a tool call."""
        return self.trained.gives_forms

    def room(self, request: ChatRequest) -> tuple[int, int]:
        """Return a prompt's number of tokens, and the number left in the context."""
        return self.trained.room(request)

    async def release(self) -> None:
        """Close the connections that the policy opened in the current event loop."""
        await self.trained.release()

    async def stream(self, request: ChatRequest) -> AsyncIterator[str | ChatResult]:
        """Yield parts of an answer while it is sampled, then the result."""
        if request.session.partition("/")[0] in self.places:
            yield await self.chat(request)
            return
        async for part in self.trained.stream(request):
            yield part

    async def chat(self, request: ChatRequest) -> ChatResult:
        """Answer with the solution's next call, or at the rollout's place sample."""
        rollout, attempt, *_ = request.session.split("/")
        place = self.places.get(rollout)
        if place is None:
            return await self.trained.chat(request)
        key = f"{rollout}/{attempt}"
        made = self._progress[key].made
        if key not in self._left and made == place.at and _is_due(place, request):
            limit = min(request.max_tokens, self._longest(request, place))
            result = await self.trained.chat(replace(request, max_tokens=limit))
            rest = _left(place, result.tool_calls)
            self._left[key] = [*place.plan[: place.at], *rest]
            return result
        result = await super().chat(request)
        return replace(result, model_version=PLANNED)

    def planned(
        self, rollout: str, attempt: str
    ) -> tuple[Task | None, Sequence[NeededCall]]:
        """Return a rollout's task, and the calls that it still makes or has made."""
        task, plan = super().planned(rollout, attempt)
        return task, self._left.get(f"{rollout}/{attempt}", plan)

    def _longest(self, request: ChatRequest, place: CallPlace) -> int:
        """Return after how many tokens an answer is cut: it is mostly wrong by then."""
        if not place.due:
            return _WORDS_TOKENS
        due = place.due if place.task.one_answer else place.due[:1]
        calls = [requested(at, c.tool, dict(c.arguments)) for at, c in enumerate(due)]
        factor, more = _LONGER
        with suppress(EngineError):  # it does not fit
            right = self.imitation.write(replace(request, session=""), "", calls)
            return round(factor * len(right.response_ids)) + more
        return request.max_tokens


def _is_due(place: CallPlace, request: ChatRequest) -> bool:
    """Return whether a request asks for the answer that is due at a place."""
    if not place.due:
        return bool(request.tools) and not (request.wants_call or request.form)
    return place.due[0].tool in {each["function"]["name"] for each in request.tools}


def _left(place: CallPlace, calls: Sequence[RequestedCall]) -> list[NeededCall]:
    """Return the rest of a solution after an answer; [] if it made no part of it.

    Tools compare arguments leniently. Here equal ones are enough, since a call that is
    played once more hardly ever changes whether the goal is reached.
    """
    left = list(place.due)
    for call in calls:
        given = parse_arguments(call.arguments) or {}
        for need in left:
            if call.name == need.tool and same_arguments(
                None, given, need.arguments, without=need.by_outcome
            ):
                left.remove(need)
                break
    return [] if len(left) == len(place.due) else left


class CallRollouts(Sampling):
    """Training rollouts of one sampled call each, while too few calls are right."""

    def __init__(self, run: RunContext, trained: Policy, imitation: Imitation) -> None:
        super().__init__(trained)
        self._run = run
        self.policy = self._policy = CallPolicy(imitation=imitation, trained=trained)
        self._share = 1.0
        if not self.is_whole:
            # The attempts at a call share its prompt, which is computed once and is
            # longer than all their answers: half of them would take most of the time.
            self.least_group = run.config.group_size
            self.wished_steps = 2 * super().wished_steps  # a call says little

    @property
    def is_whole(self) -> bool:
        """Whether rollouts are whole episodes by now."""
        return self._run.state.whole_episodes

    @property
    def share(self) -> float:
        """A rollout's time, relative to that of a whole episode."""
        return 1.0 if self.is_whole else self._share

    def time(self, whole: float) -> None:
        """Measure ``share`` by sampling some answers; episodes take ``whole`` s each.

        Answers on the way are cut where they are wrong, those of an episode are not, so
        that the number of answers alone says little.
        """
        run = self._run
        tasks = make_tasks(run.scenario, Split.TRAIN, run.config.seed, _TIMED)
        begun = time.monotonic()
        answers = self.score(tasks, "timing-calls", run.config.group_size)
        each = (time.monotonic() - begun) / len(answers)
        self._share = min(1.0, _UPDATE * each / whole)

    def begin(self, requests: Sequence[RolloutRequest]) -> None:
        """Choose the place of each rollout; all attempts at a task get the same."""
        known = {}
        for request in requests if not self.is_whole else ():
            plan = self._run.scenario.needed_calls(request.task)
            if plan is not None:
                known[request.rollout_id] = self._place(request, plan)
        self._policy.begin(known)

    def _place(self, request: RolloutRequest, plan: Sequence[NeededCall]) -> CallPlace:
        task = request.task
        seed = f"{self._run.config.seed}/{task.id}/{request.step // _SAME_PLACE}"
        at = 0 if task.one_answer else Random(seed).randrange(len(plan) + 1)
        return CallPlace(task, plan, at)

    def credited(self, rollouts: Sequence[Trajectory]) -> list[Trajectory]:
        """Return the rollouts with the credit of their sampled answer as reward."""
        places = self._policy.places
        tasks = {place.task.id: place.task for place in places.values()}
        needs = needs_of(self._run.scenario, tasks.values())
        found = []
        for rollout in rollouts:
            place = places.get(rollout.rollout_id)
            if place is not None and rollout.status is not RolloutStatus.DROPPED:
                rollout = _credited(rollout, place, needs.specs_of(rollout.task_id))
            found.append(rollout)
        return found

    def learned(self, rollouts: Sequence[Trajectory]) -> None:
        """Go over to whole episodes if calls are right, or cannot be sampled."""
        reached = [each for each in rollouts if _PART in each.reward_parts]
        led = [*reached, *(each for each in rollouts if each.reason == UNREACHED)]
        if not led:
            return
        state, text = self._run.state, ""
        right = fmean(bool(each.success) for each in reached) if reached else 0.0
        before = right if state.right_calls is None else state.right_calls
        state.right_calls = before + _NEWEST * (right - before)
        if state.right_calls >= ENOUGH_RIGHT:
            text = f"{percent(state.right_calls)} of the sampled calls are right"
        elif 2 * len(reached) < len(led):
            text = "The agent does not ask for most of the calls that its tasks need"
        if text:
            state.whole_episodes = True
            text += ": from now on rollouts are whole episodes."
            self._run.progress(events.Message(text))

    def score(self, tasks: Sequence[Task], look: str, attempts: int = 2) -> list[float]:
        """Sample some answers on the way of each task; return their credits."""
        run = self._run
        requests = [
            RolloutRequest(f"{look}-{at:03d}-{n}", task, True, f"{look}-{at:03d}", 0)
            for at, task in enumerate(tasks)
            for n in range(attempts)
        ]
        self.begin(requests)
        try:
            with run.engine.sampling():
                made = run.session.run(requests, lambda _: run.check_interrupt())
            return [each.reward or 0.0 for each in self.credited(made)]
        finally:
            run.session.delete([each.rollout_id for each in requests])


def _credited(rollout: Trajectory, place: CallPlace, specs: Specs) -> Trajectory:
    """Return a rollout whose score is that of its sampled answer."""
    found = sampled_step(rollout)
    if found is None:
        lost = {"reward": None, "status": RolloutStatus.DROPPED, "reason": UNREACHED}
        return rollout.model_copy(update=lost)
    answer, made = found
    credit = answer_credit(
        answer,
        made,
        place.due,
        specs,
        at_once=place.task.one_answer,
        succeeded=bool(rollout.success),
    )
    is_right = credit == RIGHT
    status = RolloutStatus.SUCCEEDED if is_right else RolloutStatus.FAILED
    score = {"reward": credit, "reward_parts": {_PART: credit}, "success": is_right}
    reason = None if is_right else rollout.reason or GOAL_NOT_REACHED
    return rollout.model_copy(update=score | {"status": status, "reason": reason})


def open_sampling(run: RunContext, trained: Any) -> CallRollouts | None:
    """Return a run's sampling of calls; None if its rollouts are whole episodes."""
    if not samples_calls(run.config, run.scenario):
        return None
    if not isinstance(trained, Policy):  # behind servers
        if RolloutSettings.of(run.config).kind == "calls":
            raise UsageError(
                "rollouts = calls: the model answers in this process, which it does "
                "with --engine local. Leave it out, and rollouts are episodes."
            )
        return None
    return CallRollouts(run, trained, run.engine.imitation())


def samples_calls(config: TrainingConfig, scenario: Scenario) -> bool:
    """Return whether a run begins with single calls as rollouts.

    Raises:
        UsageError: The settings ask for calls, and these cannot be sampled.
    """
    kind = RolloutSettings.of(config).kind
    if kind == "episodes" or (kind == "auto" and is_small(config.model)):
        return False
    faults = {
        "train_roles trains a part of a team": bool(config.train_roles),
        "a judge ranks whole episodes": is_judged(config),
        f"engine {engine_name(config)} cannot write given answers": (
            not imitates(config)
        ),
        f"{scenario.name} does not list the calls that its tasks need": (
            not calls_known(scenario, config.seed)
        ),
    }
    fault = next((text for text, holds in faults.items() if holds), None)
    if fault and kind == "calls":
        raise UsageError(
            f"rollouts = calls: {fault}. Leave it out, and rollouts are episodes."
        )
    return fault is None
