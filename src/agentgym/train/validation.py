"""Evaluator: measure and validate the policy of a run; choose the best weights."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from agentgym.core.task import Split, Task
from agentgym.core.trajectory import Trajectory
from agentgym.errors import TrainingFailedError
from agentgym.evaluate import events
from agentgym.evaluate.advice import cut_words
from agentgym.evaluate.attempts import attempt
from agentgym.evaluate.criteria import goal_of
from agentgym.evaluate.metrics import Metrics
from agentgym.scenarios.task_lists import held_out_sets, make_tasks, needs_of
from agentgym.train.forgetting import ask_questions, compare
from agentgym.train.run_context import RunContext
from agentgym.train.stopping import Goal

_VALIDATION_SHARE = 0.2
"""Largest share of validations among a run's training and validation rollouts."""
_LEAST_VALIDATED = 16
"""Least number of tasks of a validation, even if it is more than this share."""
_IN_SIGHT = 4
"""Times ``eval_tasks`` that a validation may take once the goal is in sight."""
_TIMED_SHARE, _LEAST_TIMED = 0.8, 0.5
"""Shares of the rollouts that the timing waits for: normally, and if timing takes long.

One very long answer would distort the time: in a run, other rollouts go on meanwhile.
"""


class _EnoughTimed(Exception):
    """Raised to stop timing rollouts before the slowest ones have ended."""


class Evaluator:
    """Measures a run's policy on held-out and on validation tasks.

    Each validation takes validation tasks that the run has not used yet, and begins
    again with the first ones if there are no more. So no choice made by validations
    depends on the same few tasks. ``on_rollout`` is called when a rollout ends; it may
    raise to stop the measurement.
    """

    def __init__(
        self, run: RunContext, on_rollout: Callable[[Trajectory], None]
    ) -> None:
        self._run = run
        self._on_rollout = on_rollout

    def is_time(self, left: int) -> bool:
        """Return whether this step has a validation; ``left`` steps can follow it.

        These are every ``eval_every`` steps, and the last step unless one is near it.
        """
        config, step = self._run.config, self._run.state.step
        regular, rest = divmod(step, config.eval_every)
        return not rest or (not left and config.validations(step) > regular)

    def is_due(self, left: int) -> bool:
        """Return whether a validation must still run at this step."""
        state = self._run.state
        is_new = state.validation is None and bool(state.step or state.warmed)
        return is_new and self.is_time(left)

    @property
    def goal(self) -> Goal:
        """The minimum of each metric that ends training once it is reached."""
        return goal_of(self._run.config.goal or self._run.scenario.success_criteria())

    def validate(self, left: int, trained: tuple[float, int] | None = None) -> Metrics:
        """Run this step's validation, decide whether the run ends; return the metrics.

        ``left`` is the number of steps that the budget still allows. ``trained`` are
        the success rate in training and the number of training tasks if these come
        again and again; else None.
        """
        state, step = self._run.state, self._run.state.step
        tasks, are_all = self._validation_tasks()
        found = state.validation = self._validation("v", tasks)
        state.validated += len(tasks)
        state.stopping.add_validation(step, found, self.goal, by_task=are_all)
        if self._run.config.early_stop:
            must_reach = self._run.config.goal is not None
            state.end = state.stopping.end(step, left, self.goal, must_reach=must_reach)
        self._run.progress(events.Validated(step, found, state.end == "goal"))
        self._watch(found, trained)
        self._compare()
        return found

    def _validation_tasks(self) -> tuple[list[Task], bool]:
        """Return the next validation tasks, and whether these are all that there are.

        There are at most ``eval_tasks``, and more of them when the goal is in sight, as
        long as validations stay a small share of all rollouts.
        """
        state, eval_tasks = self._run.state, self._run.config.eval_tasks
        share = _VALIDATION_SHARE / (1 - _VALIDATION_SHARE)
        allowed = int(share * state.episodes) - state.validated
        most = eval_tasks * (_IN_SIGHT if state.stopping.in_sight else 1)
        count = min(most, max(allowed, min(_LEAST_VALIDATED, eval_tasks)))
        if not state.step:  # after a warm start: to be compared with
            count = eval_tasks
        first, seed = state.validated, self._run.config.seed
        made = make_tasks(self._run.scenario, Split.VALIDATION, seed, first + count)
        chosen = [made[(first + n) % len(made)] for n in range(min(count, len(made)))]
        return chosen, len(chosen) == len(made)

    def ask_questions(self) -> None:
        """Let the untrained model answer everyday questions, for later comparisons."""
        config, state = self._run.config, self._run.state
        if state.forgetting is None:
            rollouts = config.episodes + 2 * config.test_tasks * config.eval_samples
            state.forgetting = ask_questions(
                self._run.engine, config, rollouts, state.rollout_seconds
            )

    def _compare(self, *, warns: bool = False) -> None:
        """Measure how much training changed the answers to everyday questions."""
        run = self._run
        if run.state.forgetting is None:
            return
        found = run.state.forgetting = compare(run.engine, run.state.forgetting)
        if warns and found.is_large:
            run.progress(events.Warned(f"On everyday questions: {found.words()}."))

    def _watch(self, found: Metrics, trained: tuple[float, int] | None) -> None:
        state = self._run.state
        if not state.step:
            state.first_validation = found
        start = state.first_validation or state.start
        remarks = state.watch.add(state.step, found, start, trained)
        if state.watch.best_step == state.step:
            state.best_validation = found
        for remark in remarks if state.end != "goal" else ():
            self._run.progress(events.Warned(remark.text))

    def time_rollouts(self, count: int, most_s: float) -> float:
        """Run ``count`` rollouts at once; return the wall seconds per rollout.

        The start of the workers does not count, since it happens once per run. The
        timing waits for most rollouts and abandons the slowest. After ``most_s``
        seconds, it waits only for half of them.
        """
        made = make_tasks(
            self._run.scenario, Split.VALIDATION, self._run.config.seed, count
        )
        samples = math.ceil(count / len(made))
        total = samples * len(made)
        usual, least = (math.ceil(s * total) for s in (_TIMED_SHARE, _LEAST_TIMED))
        self._run.progress(events.PhaseStarted("timing", total))
        begun, ended = math.inf, 0

        def note(trajectory: Trajectory) -> None:
            nonlocal begun, ended
            ended += 1
            begun = min(begun, time.monotonic() - trajectory.duration_s)
            self._on_rollout(trajectory)
            is_long = time.monotonic() - begun > most_s
            if ended >= (least if is_long else usual):
                raise _EnoughTimed

        step = self._run.state.step + 1
        with suppress(_EnoughTimed):
            self._measure({"timing": made}, samples=samples, step=step, on_rollout=note)
        return (time.monotonic() - begun) / ended

    def held_out(self, phase: str, *, step: int) -> dict[str, Metrics]:
        """Measure the policy on every held-out set; return the metrics by set's name.

        The main set comes first; other sets may have e.g. harder tasks. ``phase`` says
        when this is: ``before`` training, ``warmed`` (after a warm start) or ``after``
        training. ``step`` is recorded with the rollouts: a resumed run deletes rollouts
        of steps after its checkpoint.
        """
        run, config = self._run, self._run.config
        sets = held_out_sets(run.scenario, config.seed, config.test_tasks)
        total = config.eval_samples * sum(map(len, sets.values()))
        run.progress(events.PhaseStarted(phase, total))
        made = {f"{phase} {name}": tasks for name, tasks in sets.items()}
        done = self._measure(made, samples=config.eval_samples, step=step)
        cut = max(found.answers_cut.value for found in done.values())
        if warning := cut_words(cut, config.answer_tokens):
            run.progress(events.Warned(warning))
        return {name: done[f"{phase} {name}"] for name in sets}

    def at_end(self, weights: int) -> dict[str, Metrics]:
        """Return the held-out metrics of the trained agent's weights, by set."""
        state = self._run.state
        # The weights of a warm start (step 0) were measured before.
        found = state.warmed if not weights else {}
        found = found or self.held_out("after", step=state.step + 1)
        self._compare(warns=True)
        return found

    def _fresh(self, name: str) -> Metrics:
        """Measure the policy on validation tasks that the run has not used before."""
        run, first = self._run, self._run.state.validated
        size, seed = run.config.eval_tasks, run.config.seed
        made = make_tasks(run.scenario, Split.VALIDATION, seed, first + size)
        return self._validation(f"{name}-", made[first:] or made[:size], later=True)

    def load_best_weights(self, left: int) -> int:
        """Choose the trained agent's weights, load them, and return their step.

        These are the newest if they reached the goal, else the best validated. After a
        warm start, the best of many may be best by chance: they, or newest ones that
        were not validated, must solve more unused tasks than the warm start's weights.
        """
        run, state, engine = self._run.folder, self._run.state, self._run.engine
        best, step = run.best_checkpoint(state), state.watch.best_step
        first = run.first_checkpoint(state)
        if state.end == "collapsed" and best is None:
            raise TrainingFailedError(
                "The policy has stopped calling the right tools, and no earlier "
                "weights were validated: the agent is as it was before. Look at "
                f"rewarded rollouts, `agentgym view {run.path}`; then start again, "
                "with a lower learning_rate if the rewards are as they should be.",
                resumable=False,
            )
        if state.end == "goal" or best is None:
            return state.step
        if best == first and not self.is_time(left):
            best, step = run.checkpoints()[-1], state.step
        if first is not None and best != first:
            engine.load_checkpoint(best)
            found = self._fresh("best")
            engine.load_checkpoint(first)
            before = self._fresh("first")
            if found.pass_1.value <= before.pass_1.value:
                return 0
        if step != state.step or first is not None:
            engine.load_checkpoint(best)
        return step

    def _validation(
        self, prefix: str, tasks: Sequence[Task], *, later: bool = False
    ) -> Metrics:
        """Measure the policy once on each task; if ``later``, also in a resumed run."""
        step = self._run.state.step
        name = f"{prefix}{step:05d}"
        self._run.progress(events.PhaseStarted("validation", len(tasks)))
        return self._measure({name: tasks}, samples=1, step=step + later)[name]

    def _measure(
        self,
        sets: Mapping[str, Sequence[Task]],
        *,
        samples: int,
        step: int,
        on_rollout: Callable[[Trajectory], None] | None = None,
    ) -> dict[str, Metrics]:
        done = on_rollout or self._on_rollout
        with self._run.engine.sampling():
            made = attempt(self._run.session, sets, samples, done, step=step)
        return {
            name: Metrics.of(
                found,
                k=samples,
                needs=needs_of(self._run.scenario, sets[name]),
                replaced=self._run.config.token_prices,
            )
            for name, found in made.items()
        }
