"""RolloutSession: open and close the store, gateway and workers of one run together."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from agentgym.core.collector import calm_collector
from agentgym.core.config import TrainingConfig
from agentgym.core.files import Beat, no_beat, require_writable_state
from agentgym.core.policy import Policy, RegisteredPolicy, ServedPolicy
from agentgym.core.trajectory import Trajectory
from agentgym.errors import ProviderError, UsageError
from agentgym.integrations.registry import FRAMEWORKS
from agentgym.models.reference import Endpoint
from agentgym.rollout.prompt_overrides import Wording
from agentgym.rollout.runner import RolloutRequest, Runner
from agentgym.rollout.store.store import Store
from agentgym.rollout.workers.pool import WorkerPool, WorkerSpec
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.registry import scenario_of
from agentgym.security.audit import FILE as AUDIT_FILE
from agentgym.security.audit import AuditLog, log_or_none

if TYPE_CHECKING:
    from agentgym.models.answers import AnswerCache
    from agentgym.rollout.gateway.protocol import GatewaySettings

DATABASE_FILE = "rollouts.db"
WORKER_LOG = "workers.log"


def worker_log(config: TrainingConfig, folder: Path) -> Path:
    """Return the log file of the workers; with ``private``, their output is lost."""
    return Path(os.devnull) if config.private else folder / WORKER_LOG


@dataclass(eq=False, repr=False)
class RolloutSession:
    """Runs rollouts of one configuration with one policy, in a ``with`` block."""

    config: TrainingConfig
    policy: Policy | ServedPolicy | RegisteredPolicy | Endpoint
    folder: Path  # for rollouts.db and the workers' log
    workers: int  # number of worker processes
    _: KW_ONLY
    # Last training step to keep from an earlier process. Rollouts of later steps are
    # deleted, since they run again with the same ids; -1 deletes all.
    resumed_step: int = -1
    # Called every half second while waiting, with the reason why the store waits, or
    # None; may raise an error to stop waiting.
    beat: Beat = no_beat
    # The file of a trial's notes; then workers cannot connect to other machines.
    witness: Path | None = None
    cache: "AnswerCache | None" = None  # of answers from a provider's model
    # File of the audit log. By default, the log that is open in the caller's context is
    # used, or a file in `folder`.
    audit: Path | None = None
    _stack: ExitStack = field(default_factory=ExitStack, init=False)

    def __enter__(self) -> Self:
        from agentgym.rollout.gateway.gateway import Gateway  # imports aiohttp

        config, above = self.config, log_or_none()
        usual = above.path if above else self.folder / AUDIT_FILE
        audit = AuditLog(self.audit or usual, private=config.private)
        with ExitStack() as stack:
            stack.enter_context(calm_collector())
            self._store = stack.enter_context(
                Store(
                    self.folder / DATABASE_FILE,
                    max_attempts=config.max_attempts,
                    private=config.private,
                )
            )
            self._store.delete_steps_after(self.resumed_step)
            self._gateway = gateway = stack.enter_context(
                Gateway(
                    self._store,
                    policy=self.policy,
                    settings=gateway_settings(config),
                    cache=self.cache,
                    audit=audit,
                )
            )
            self._runner = Runner(
                self._store,
                scenario=config.scenario_name,
                max_attempts=config.max_attempts,
            )
            self._pool = stack.enter_context(
                WorkerPool(
                    WorkerSpec.of(
                        config,
                        gateway=gateway.url,
                        api_key=gateway.api_key,
                        model=gateway.model_name,
                        witness=self.witness,
                        audit=audit.path,
                    ),
                    count=self.workers,
                    log=worker_log(config, self.folder),
                    on_death=self._runner.worker_died,
                )
            )
            if isinstance(self.policy, RegisteredPolicy):
                self.policy.connect(gateway.url, gateway.api_key, self.beat)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._store.give_up()
        self._stack.close()

    def run(
        self, requests: Sequence[RolloutRequest], on_done: Callable[[Trajectory], None]
    ) -> list[Trajectory]:
        """Run every request to its end; return trajectories in the same order."""

        def done(trajectory: Trajectory) -> None:
            self._check_model()
            on_done(trajectory)

        def beat(stalled: str | None) -> None:
            self._check_model()
            self.beat(stalled)

        return self._runner.run(requests, self._pool, done, beat)

    def _check_model(self) -> None:
        if self._gateway.failure is not None:
            raise ProviderError(self._gateway.failure)

    def reword(self, wording: Wording) -> None:
        """Replace the agent's prompts and tool descriptions in all later requests."""
        self._gateway.reword(wording)

    @property
    def agent(self) -> Mapping[str, Any]:
        """Facts from a worker about the agent that it built; {} before it is ready."""
        return self._pool.agent

    @property
    def refusal(self) -> UsageError | None:
        """The error in the user's settings or agent that ended a worker, if any."""
        return self._pool.refusal

    @property
    def troubles(self) -> list[str]:
        """Messages about model servers that failed, and so got no calls."""
        return self._gateway.troubles

    def delete(self, rollout_ids: Iterable[str]) -> None:
        """Delete running or ended rollouts from memory and from the database."""
        for rollout_id in rollout_ids:
            self._store.delete(rollout_id)

    def flush(self) -> None:
        """Wait until all rollouts and events recorded so far are on disk."""
        self._store.flush(self.beat)


def gateway_settings(config: TrainingConfig, **more: Any) -> "GatewaySettings":
    """Return a gateway's settings, with the seed and the sampling of ``config``.

    ``more`` are other fields of GatewaySettings. A provider's model uses
    ``eval_temperature`` only if it differs from this setting's default; else it uses
    the provider's default temperature.
    """
    from agentgym.rollout.gateway.protocol import GatewaySettings

    usual = TrainingConfig.model_fields["eval_temperature"].default
    own = config.eval_temperature
    return GatewaySettings(
        seed=config.seed,
        train_temperature=config.temperature,
        val_temperature=own,
        provider_temperature=None if own == usual else own,
        max_tokens=config.answer_tokens,
        wording=Wording.parse(config.prompts),
        **more,
    )


def check_rollouts(config: TrainingConfig) -> tuple[Scenario, str]:
    """Check the scenario, the framework, the agent and the sandbox before a run."""
    from agentgym.integrations.agent_import import load_agent
    from agentgym.sandbox.ladder import described, tried

    require_writable_state()
    scenario = scenario_of(config.scenario, config.plugin_groups)
    adapter = FRAMEWORKS.get(config.framework)
    adapter.check()
    adapter.check_reference(config.agent.reference)
    if config.agent.reference is not None:
        load_agent(config.agent.reference)  # as every worker will do
    scenario.unsafe_local_exec = config.unsafe_local_exec
    return scenario, described(tried(scenario.sandbox_config()))


def worker_count(config: TrainingConfig) -> int:
    """Return the number of worker processes of a run."""
    if config.workers is not None:
        return config.workers
    return max(1, min(8, len(os.sched_getaffinity(0)) - 1))
