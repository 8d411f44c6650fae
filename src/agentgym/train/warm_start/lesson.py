"""Lesson: run the needed calls of training tasks, and imitate successful ones."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from agentgym.core.components import TOOL, Component
from agentgym.core.config import TrainingConfig
from agentgym.core.policy import Policy
from agentgym.core.trajectory import NO_REASON, ModelCall, Trajectory
from agentgym.engines.base import Engine, Imitation, TrainingBatch
from agentgym.errors import ScenarioError, TrainingFailedError
from agentgym.evaluate.progress import Progress
from agentgym.integrations.registry import FRAMEWORKS
from agentgym.models.folder import is_small
from agentgym.rollout.probe import role_names
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import RolloutSession, worker_count
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.task_lists import needs_of
from agentgym.train.batch import merged
from agentgym.train.warm_start.plans import (
    ANSWER,
    PlanPolicy,
    tasks_to_imitate,
)
from agentgym.train.warm_start.record import WarmStart
from agentgym.train.warm_start.routes import Routes

TASKS = 4500
"""Training tasks whose calls a small model imitates, once each: new tasks train more
than repeated ones.
"""
REAL_TASKS = 320
"""Training tasks for other language models, which can call tools and learn which, and
when."""
MOST_PASSES = 3
"""Most passes through the tasks of a scenario that has fewer."""
TASKS_PER_UPDATE = 24
LEAST_UPDATES = 30
"""Least updates: with few tasks, passes are repeated until there were so many."""
_HELD_OUT = 0.1
"""Share of the plans that are held out, to stop when their loss stops falling."""
_MOST_HELD_OUT = 24
_ENOUGH = 80
"""Least plans to hold some out; with fewer, all are needed."""
_LOOKS = 10
_FALL = 0.995
"""Factor of the best held-out loss below which a loss counts as lower."""
_PATIENCE = 2
_WARMUP_UPDATES = 10
_LAST_UPDATES = 20  # over which the loss is reported
_MOST_REASONS = 3
_MOST_TRIALS = 16


def most_tasks(config: TrainingConfig) -> int:
    """Return the most training tasks that a warm start imitates."""
    usual = TASKS if is_small(config.model) else REAL_TASKS
    return config.warm_start_tasks or usual


class Lesson:
    """One warm start, from plans to weights. A seed determines the result.

    Args:
        config: Every setting.
        scenario: The scenario, which lists the calls that tasks need.
        engine: The engine with the policy.
        progress: Receives the phases of playing and learning.
        check: Called often; may raise to give up.
        spent: Returns the used share of its time; at 1 it ends.

    Raises:
        ScenarioError: The scenario lists no needed calls.
    """

    def __init__(
        self,
        config: TrainingConfig,
        scenario: Scenario,
        engine: Engine,
        progress: Progress,
        check: Callable[[], None],
        spent: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._spent = spent
        self._config = config
        self._scenario = scenario
        self._engine = engine
        self._progress = progress
        self._check = check
        self.held_out_loss: float | None = None
        self._endings: set[str] = set()
        self._is_small = is_small(config.model)
        self._most = most_tasks(config)
        self._planned = tasks_to_imitate(scenario, config.seed, self._most)

    @property
    def size(self) -> int:
        """Most rollouts to learn from, counting repeated passes."""
        return self._passes(len(self._planned)) * len(self._planned)

    def give(self) -> WarmStart:
        """Run the plans, and fine-tune on the successful ones.

        Raises:
            ScenarioError: Most plans fail.
            TrainingFailedError: No update was finite.
        """
        imitation = self._engine.imitation()
        played = self._play(imitation)
        solved = [made for made in played if made.success]
        learned = [made for made in solved if self._calls_of(made)]
        failed = Counter(
            (made.reason or NO_REASON).kind for made in played if not made.success
        )
        self._look_at(failed, len(played))
        if not learned:
            raise TrainingFailedError(
                f"train_roles = {', '.join(self._config.train_roles or ())}: none of "
                "these makes a call in the plans of training tasks, so there is "
                "nothing to imitate. Name another role, or leave --warm-start out."
            )
        apart = min(_MOST_HELD_OUT, int(_HELD_OUT * len(learned)))
        if len(learned) < _ENOUGH:
            apart = 0
        order = Random(f"{self._config.seed}/held out").sample(learned, len(learned))
        held_out, learned = order[:apart], order[apart:]
        losses = self._learn(imitation, learned, held_out)
        finite = [loss for loss in losses if math.isfinite(loss)]
        if not finite:
            raise TrainingFailedError(
                "Not one update of the warm start was finite, so nothing was imitated. "
                "Use another --model, or leave --warm-start out."
            )
        last = finite[-_LAST_UPDATES:]
        return WarmStart(
            tasks=len(played),
            imitated=len(learned),
            failed=dict(failed.most_common()),
            updates=len(finite),
            loss=sum(last) / len(last),
            held_out_loss=self.held_out_loss,
        )

    def _play(self, imitation: Imitation) -> list[Trajectory]:
        """Run the plans in the run's own agent, with the PlanPolicy as its model."""
        named = {f"plan-{n:05d}": planned for n, planned in enumerate(self._planned)}
        requests = [
            RolloutRequest(name, task, train=True, group=name, step=0)
            for name, (task, _) in named.items()
        ]
        self._progress.phase("plans", len(requests))
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
        """Return the hand-offs to explore; None without an own agent's team."""
        if self._config.agent.reference is None:
            return None
        tasks = (task for task, _ in self._planned)
        own = frozenset(needs_of(self._scenario, tasks).specs)
        addressee = FRAMEWORKS.get(self._config.framework).addressee
        return Routes(own, addressee, role_names(self._config, self._scenario))

    def _try_hand_offs(self, session: RolloutSession, routes: Routes) -> None:
        """Let the agent make each hand-off once, and no other call."""
        [(task, _), *_] = self._planned
        for number in range(_MOST_TRIALS):
            before = {place: dict(moves) for place, moves in routes.ways.items()}
            asked = RolloutRequest(
                f"routes-{number}", task, True, f"routes-{number}", step=0
            )
            session.run([asked], lambda _: self._check())
            if routes.ways == before:
                return

    def _on_rollout(self, trajectory: Trajectory) -> None:
        self._progress.rollout_done()
        self._check()

    def _look_at(self, failed: Counter[str], total: int) -> None:
        """Report failed plans; raise if most of them failed.

        Raises:
            ScenarioError: Most plans failed.
        """
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
                "needed_calls(task) of "
                f"{self._scenario.name} (in a tasks file: `expect`), which `agentgym "
                "scenarios check` plays, or leave --warm-start out."
            )
        self._progress.warned([f"{text} The warm start leaves those out."])

    def _learn(
        self,
        imitation: Imitation,
        solved: Sequence[Trajectory],
        held_out: Sequence[Trajectory],
    ) -> Iterator[float]:
        """Yield each update's loss; the learning rate rises, then falls to zero.

        It ends when the loss of held-out plans stops falling, or with its time.
        """
        size = TASKS_PER_UPDATE
        passes = self._passes(len(solved))
        total = passes * math.ceil(len(solved) / size)
        self._progress.phase("imitation", passes * len(solved))
        apart = self._examples(held_out)
        best, spent, every = math.inf, 0, max(1, total // _LOOKS)
        done = 0
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
                    self._progress.rollout_done()
                self._check()
                if done % every or not apart.sequences:
                    continue
                loss = imitation.measure(apart)
                fell = loss < _FALL * best  # false for nan
                if math.isfinite(loss):
                    self.held_out_loss = loss
                    best = min(best, loss)
                spent = 0 if fell else spent + 1
                if spent == _PATIENCE:
                    return

    def _examples(self, rollouts: Sequence[Trajectory]) -> TrainingBatch:
        """Return rollouts as a batch in which the calls of answers are trained."""
        made = TrainingBatch()
        for group, rollout in enumerate(rollouts):
            calls = self._calls_of(rollout)
            made.sequences += merged(
                [(call, dict.fromkeys(self._taught(call)), 1.0) for call in calls],
                group,
            )
        made.sequences = [each for each in made.sequences if each.trained]
        return made

    def _taught(self, call: ModelCall) -> Sequence[int]:
        """Return the token positions to imitate in an answer: its calls and their end.

        A language model keeps its own reasoning and last answer, since the plan has
        none. Of the latter it learns where to give one: the first token, which decides
        against a call, and the end of a whole one. If it only learned to call, it would
        call until the agent stops it.
        """
        every = range(len(call.response_ids))
        components = self._engine.label(call)
        ends = call.content == ANSWER or call.content in self._endings
        if not self._is_small and not call.tool_calls and ends:
            own = components or ()
            decisions = [at for at, part in enumerate(own) if part == TOOL]
            return decisions if call.content == ANSWER else decisions[:1]
        if components is None:
            return every
        return [at for at in every if Component.REASONING not in components[at]]

    def _calls_of(self, rollout: Trajectory) -> list[ModelCall]:
        """Return the model calls of the trained roles."""
        roles = self._config.train_roles
        return [c for c in rollout.model_calls if roles is None or c.agent in roles]

    def _passes(self, count: int) -> int:
        """Return the number of passes through so many rollouts."""
        updates = math.ceil(count / TASKS_PER_UPDATE)
        least = math.ceil(LEAST_UPDATES / updates)
        return max(least, min(MOST_PASSES, self._most // count))
