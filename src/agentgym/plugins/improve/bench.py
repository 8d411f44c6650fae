"""Bench: let one agent with one model attempt held-out or training tasks."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from agentgym.core.config import TrainingConfig
from agentgym.core.files import scratch_folder
from agentgym.core.policy import Policy, RegisteredPolicy, ServedPolicy
from agentgym.core.prices import Prices
from agentgym.core.task import Task
from agentgym.core.trajectory import Trajectory
from agentgym.engines.lengths import paced
from agentgym.engines.registry import create_engine, paced_settings
from agentgym.evaluate import events
from agentgym.evaluate.attempts import attempt
from agentgym.evaluate.metrics import Metrics
from agentgym.models.reference import is_remote, resolve_model
from agentgym.rollout.gateway.metered import Meter, MeteredEndpoint
from agentgym.rollout.prompt_overrides import Wording
from agentgym.rollout.session import RolloutSession, worker_count
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import held_out_sets, needs_of
from agentgym.security.audit import default_log

_IN_FLIGHT = 8


@contextmanager
def open_bench(
    config: TrainingConfig, meter: Meter, progress: events.Observer
) -> Iterator["Bench"]:
    """Load the model, or connect to its server; yield a Bench, which runs the agent.

    The settings ``config`` must have absolute paths.

    ``meter`` limits and counts the tokens and the cost of a model on a provider's
    server; a model on this machine does not use it.
    """
    scenario, own = get_scenario(config.scenario), config
    policy: Policy | ServedPolicy | RegisteredPolicy | MeteredEndpoint
    with ExitStack() as stack:
        if is_remote(config.model):
            config = paced(config, in_flight=_IN_FLIGHT)
            meter.most_tokens = config.answer_tokens
            policy = MeteredEndpoint.of(resolve_model(config.model), meter)
        else:
            config = paced_settings(config)
            engine = create_engine(config)
            stack.callback(engine.close)
            stack.enter_context(engine.sampling())
            policy = engine.policy
        folder = stack.enter_context(scratch_folder("improve"))
        session = RolloutSession(
            config, policy, folder, worker_count(config), audit=default_log()
        )
        yield Bench(own, scenario, stack.enter_context(session), progress)


@dataclass(frozen=True)
class Bench:
    """Runs rollouts of one agent with one model."""

    config: TrainingConfig
    scenario: Scenario
    session: RolloutSession
    progress: events.Observer

    def held_out(
        self, wording: Wording, prices: Prices
    ) -> tuple[Metrics, list[Trajectory]]:
        """Measure the agent on the main held-out tasks; return the rollouts, too.

        Other held-out sets, e.g. of harder tasks, are not measured. ``wording`` has
        prompts and tool descriptions to send instead of the agent's own. Raises the
        errors of :meth:`attempt`.
        """
        config = self.config
        sets = held_out_sets(self.scenario, config.seed, config.test_tasks)
        name, tasks = next(iter(sets.items()))
        k = config.eval_samples
        made = self.attempt(
            f"before {name}", tasks, wording, samples=k, phase="evaluation"
        )
        metrics = Metrics.of(
            made,
            k=k,
            prices=prices,
            needs=needs_of(self.scenario, tasks),
            replaced=config.token_prices,
        )
        return metrics, made

    def attempt(
        self,
        name: str,
        tasks: Sequence[Task],
        wording: Wording,
        *,
        samples: int = 1,
        phase: str = "search",
    ) -> list[Trajectory]:
        """Attempt each task ``samples`` times."""
        self.session.reword(wording)
        self.progress(events.PhaseStarted(phase, len(tasks) * samples))
        done = attempt(
            self.session,
            {name: tasks},
            samples,
            lambda _: self.progress(events.RolloutDone()),
        )
        return done[name]
