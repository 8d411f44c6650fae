"""AgentRollouts: the ``rollout_func`` of TRL's GRPOTrainer, for any agent."""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import ValidationError

from agentgym.core.config import TrainingConfig
from agentgym.core.files import scratch_folder
from agentgym.core.ledger import Ledger
from agentgym.core.task import Split, Task
from agentgym.core.trajectory import RolloutStatus, Trajectory
from agentgym.engines.registry import paced_settings
from agentgym.errors import (
    ConfigError,
    MissingExtraError,
    TrainingFailedError,
    UsageError,
)
from agentgym.models.folder import model_source
from agentgym.rollout.located import located
from agentgym.rollout.probe import probed, require_trainable
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import RolloutSession, check_rollouts, worker_count
from agentgym.scenarios.task_lists import make_tasks
from agentgym.scenarios.tool_tasks.scenario import ToolScenario
from agentgym.train.batch import BatchBuilder
from agentgym.train.trainer import named_subject
from agentgym.train.trl.model import check_trainer, copy_weights, load_policy
from agentgym.train.trl.rows import CompletionRow, row_of

if TYPE_CHECKING:
    from datasets import Dataset
    from trl.trainer.grpo_trainer import GRPOTrainer

    from agentgym.engines.local.policy import LocalPolicy

_SETTINGS = (
    "allow_host",
    "allow_tools",
    "chat_template",
    "chat_template_kwargs",
    "concurrency",
    "configurable",
    "context",
    "inputs",
    "max_attempts",
    "max_tokens",
    "model",
    "on_interrupt",
    "own_tools",
    "precision",
    "program_memory_mb",
    "rollout_timeout_s",
    "seed",
    "thinking",
    "tool_format",
    "train_roles",
    "train_tokens",
    "unsafe_local_exec",
    "workers",
)
_TASK = "task"
"""Key in a prompt's message; its value is the task as JSON."""


class AgentRollouts:
    """Runs agents on tasks, and returns their tokens to TRL's trainer.

    ::

        with AgentRollouts("coding", framework="langchain") as rollouts:
            trainer = GRPOTrainer(
                model=rollouts.model,
                rollout_func=rollouts,
                reward_funcs=rollouts.episode_reward,
                train_dataset=rollouts.dataset(),
            )
            trainer.train()

    The agent runs in worker processes, as in ``agentgym train``. A model in this
    process answers its requests, and gets the trainer's weights before each batch. This
    needs memory for a second copy of the weights, but no vLLM.

    Args:
        scenario: The scenario's name, or the result of ``Scenario.from_tools``.
        agent: Your own agent, or ``module:name`` of it; see :meth:`Trainer.train`.
        command: Instead of ``agent``: a program that attempts one task.
        tasks: Instead of a scenario: a tasks file for the agent's own tools.
        check: A function that scores attempts at ``tasks``, instead of the expected
            calls.
        check_command: Instead of ``check``: a command that scores attempts.
        framework: The agent's framework; detected from ``agent`` if that is given.
        folder: Folder for rollouts.db and the workers' log; None deletes both at the
            end.
        **settings: Fields of :class:`TrainingConfig` about agents and the model:
            ``model``, ``train_tokens``, ``train_roles``, ``max_tokens``, ``workers``,
            ``seed``, …. Set all others in TRL's ``GRPOConfig``.

    Attributes:
        scenario: Creates and scores the tasks.
        model: The model's folder or id, for ``GRPOTrainer(model=…)``.
        ledger: Counts each model call as trained, masked or dropped, with the reason.
        trajectories: The rollouts of the newest batch, by rollout id.

    Raises:
        UsageError: A setting is unusable, or belongs to TRL.
        MissingExtraError: The extra ``trl`` is not installed.
    """

    def __init__(
        self,
        scenario: str | ToolScenario | None = None,
        *,
        agent: Any = None,
        command: str | None = None,
        tasks: str | Path | None = None,
        check: Callable[..., Any] | str | None = None,
        check_command: str | None = None,
        framework: str | None = None,
        folder: str | os.PathLike[str] | None = None,
        **settings: Any,
    ) -> None:
        if find_spec("trl") is None or find_spec("torch") is None:
            raise MissingExtraError("trl", "Rollouts for TRL's trainer")
        if unknown := sorted(settings.keys() - set(_SETTINGS)):
            raise ConfigError(
                f"{', '.join(unknown)}: AgentRollouts takes settings of agents and "
                f"models: {', '.join(_SETTINGS)}. Those of training are TRL's: "
                "set them in GRPOConfig."
            )
        subject = named_subject(scenario, agent, command, tasks, check, check_command)
        named = {**subject, "framework": framework, **settings}
        config = located(TrainingConfig.create().replaced(**named))
        self.scenario, _ = check_rollouts(config)
        self._config = paced_settings(config)
        if config.agent.reference is not None:
            require_trainable(config, probed(config))
        self.model = model_source(config.model)
        self.ledger = Ledger()
        self.trajectories: dict[str, Trajectory] = {}
        self._folder = None if folder is None else Path(folder)
        self._policy: LocalPolicy | None = None
        self._session: RolloutSession | None = None
        self._batches = 0
        self._share = 0.0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers and free the model; a later batch starts them again."""
        self._policy = self._session = None
        self._stack.close()

    def dataset(self, count: int = 1024, *, split: str = "train") -> "Dataset":
        """Return a data set for TRL: each row has one task, in the column ``prompt``.

        Args:
            count: Maximum number of rows; fewer if the scenario has fewer tasks.
            split: ``train``, ``validation`` or ``test``.

        Raises:
            ScenarioError: The scenario has no such tasks.
        """
        from datasets import Dataset

        made = make_tasks(self.scenario, Split(split), self._config.seed, count)
        return Dataset.from_list([{"prompt": [_message(task)]} for task in made])

    def __call__(
        self, prompts: Sequence[Any], trainer: "GRPOTrainer"
    ) -> dict[str, list[Any]]:
        """Attempt the task of each prompt with the trainer's newest weights.

        Args:
            prompts: The ``prompt`` of rows of :meth:`dataset`. TRL repeats each one
                ``num_generations`` times.
            trainer: The trainer.

        Returns:
            Lists with one entry per prompt: ``prompt_ids``, ``completion_ids``,
            ``logprobs``, ``env_mask`` (1 if the loss covers the token), ``reward``
            (None for a dropped rollout), ``success`` and ``rollout_id``.

        Raises:
            UsageError: A prompt has no task, or TRL's settings do not fit.
            TrainingFailedError: Every rollout was dropped.
        """
        tasks = list(map(_task_of, prompts))
        session, policy = self._opened(trainer)
        copy_weights(trainer, policy)
        requests = self._requests(tasks, trainer.state.global_step + 1)
        made = session.run(requests, lambda _: None)
        if all(t.status is RolloutStatus.DROPPED for t in made):
            raise TrainingFailedError(
                f"All {len(made)} rollouts of a step were dropped. The first: "
                f"{str(made[0].reason).rstrip('.')}.",
                resumable=False,
            )
        rows = self._rows(made, trainer, policy)
        self.trajectories = {t.rollout_id: t for t in made}
        return {
            "prompt_ids": [row.prompt_ids for row in rows],
            "completion_ids": [row.completion_ids for row in rows],
            "logprobs": [row.logprobs for row in rows],
            "env_mask": [row.mask for row in rows],
            "reward": [rollout.reward for rollout in made],
            "success": [rollout.success for rollout in made],
            "rollout_id": [rollout.rollout_id for rollout in made],
        }

    def episode_reward(
        self,
        *,
        reward: list[float | None],
        success: list[bool | None],
        log_metric: Callable[[str, float], None] | None = None,
        **_: Any,
    ) -> list[float | None]:
        """Return the scenario's reward of each rollout; a reward function for TRL.

        The reward of a dropped rollout is None: TRL leaves it out of the group's mean.
        Logs three shares with ``log_metric``: of successes among scored rollouts, of
        dropped rollouts, and of trained model calls.
        """
        if log_metric is not None:
            scored = [
                bool(s) for s, r in zip(success, reward, strict=True) if r is not None
            ]
            log_metric("agentgym/success", sum(scored) / max(1, len(scored)))
            log_metric("agentgym/dropped", 1 - len(scored) / len(reward))
            log_metric("agentgym/calls_trained", self._share)
        return reward

    def _opened(self, trainer: "GRPOTrainer") -> tuple[RolloutSession, "LocalPolicy"]:
        """Return the rollout session and the sampling model; start both if needed."""
        if self._session is not None and self._policy is not None:
            return self._session, self._policy
        check_trainer(trainer)
        args: Any = trainer.args
        longest = args.max_completion_length or sys.maxsize
        config = self._config.replaced(
            temperature=args.temperature,
            max_tokens=min(self._config.answer_tokens, longest),
        )
        with ExitStack() as stack:
            folder = self._folder or stack.enter_context(scratch_folder("trl"))
            folder.mkdir(parents=True, exist_ok=True)
            self._policy = load_policy(config, trainer)
            stack.callback(self._policy.close)
            self._session = stack.enter_context(
                RolloutSession(
                    config,
                    self._policy,
                    folder,
                    worker_count(config),
                    resumed_step=trainer.state.global_step or -1,
                )
            )
            self._stack = stack.pop_all()
        return self._session, self._policy

    def _requests(self, tasks: Sequence[Task], step: int) -> list[RolloutRequest]:
        """Return a rollout request per task; those for the same task form a group."""
        self._batches += 1
        groups: dict[str, int] = {}
        attempts: dict[int, int] = {}
        made = []
        for task in tasks:
            group = groups.setdefault(task.model_dump_json(), len(groups))
            attempts[group] = attempt = attempts.get(group, -1) + 1
            name = f"s{step:05d}-b{self._batches:05d}-t{group:03d}"
            rollout_id = f"{name}-{attempt:02d}"
            made.append(RolloutRequest(rollout_id, task, True, name, step))
        return made

    def _rows(
        self, made: Sequence[Trajectory], trainer: "GRPOTrainer", policy: "LocalPolicy"
    ) -> list[CompletionRow]:
        """Return a row for TRL per rollout; count its model calls in ``ledger``."""
        builder = BatchBuilder.of(self._config, self.scenario, policy.tokens.label)
        args: Any = trainer.args
        tokenizer: Any = trainer.processing_class
        longest = args.max_completion_length or sys.maxsize
        rows = [row_of(each, builder, longest, tokenizer.eos_token_id) for each in made]
        batch = Ledger()
        for rollout, row in zip(made, rows, strict=True):
            for ledger in (batch, self.ledger):
                ledger.add_rollout(rollout, row.buckets)
        self._share = batch.trained / max(1, batch.calls)
        return rows


def _message(task: Task) -> dict[str, str]:
    """Return a prompt message that contains the whole task."""
    return {"role": "user", "content": task.instruction, _TASK: task.model_dump_json()}


def _task_of(prompt: Any) -> Task:
    """Return the task in a TRL prompt; raise UsageError if it has none."""
    try:
        return Task.model_validate_json(prompt[-1][_TASK])
    except (TypeError, KeyError, IndexError, ValidationError):
        raise UsageError(
            f"The prompt {str(prompt)[:80]!r} holds no task of AgentGym's: give "
            "GRPOTrainer(train_dataset=rollouts.dataset())."
        ) from None
