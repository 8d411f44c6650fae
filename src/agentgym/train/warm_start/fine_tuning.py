"""Warm start: run the calls that training tasks need; fine-tune on successful runs."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from random import Random
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from agentgym.core.components import TOOL, Component
from agentgym.core.config import TrainingConfig
from agentgym.core.policy import Policy
from agentgym.core.trajectory import NO_REASON, ModelCall, Trajectory
from agentgym.engines.base import Imitation, TrainingBatch
from agentgym.errors import ScenarioError, TrainingFailedError
from agentgym.evaluate import events
from agentgym.integrations.registry import FRAMEWORKS
from agentgym.models.folder import is_small
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import RolloutSession, worker_count
from agentgym.scenarios.task_lists import needs_of
from agentgym.train.batch import merged
from agentgym.train.run_state import WarmStart
from agentgym.train.warm_start.plans import (
    ANSWER,
    FORM,
    PlanPolicy,
    Routes,
    tasks_to_imitate,
)

if TYPE_CHECKING:
    from agentgym.train.run_context import RunContext

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
