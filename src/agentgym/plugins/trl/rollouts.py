"""AgentRollouts: the ``rollout_func`` of TRL's GRPOTrainer, for any agent."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import ValidationError

from agentgym.core.agent import AgentSource
from agentgym.core.config import Precision, TrainingConfig
from agentgym.core.files import scratch_folder
from agentgym.core.ledger import TRAINED, Bucket, Ledger
from agentgym.core.task import Split, Task
from agentgym.core.trajectory import ModelCall, RolloutStatus, Trajectory
from agentgym.engines.base import TrainingSequence
from agentgym.engines.registry import paced_settings
from agentgym.errors import (
    ConfigError,
    MissingExtraError,
    TrainingFailedError,
    UnsupportedError,
    UsageError,
)
from agentgym.models.folder import model_source
from agentgym.rollout.absolute_paths import located
from agentgym.rollout.inspection import probed, require_trainable
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import RolloutSession, check_rollouts, worker_count
from agentgym.scenarios.task_lists import make_tasks
from agentgym.scenarios.tool_tasks.scenario import ToolScenario
from agentgym.train.batch import BatchBuilder
from agentgym.train.trainer import named_subject

if TYPE_CHECKING:
    from datasets import Dataset
    from trl.trainer.grpo_trainer import GRPOTrainer

    from agentgym.engines.local.policy import LocalPolicy


OTHER_SEQUENCE = "not in the sequence that its rollout is trained by"
CUT = "beyond max_completion_length"


@dataclass(frozen=True)
class CompletionRow:
    """One rollout as TRL's trainer expects it from its ``rollout_func``.

    Attributes:
        prompt_ids: Token ids before the first trained model call's response; not empty.
        completion_ids: Token ids after the prompt, up to the last trained call:
            responses, with tool results and other messages between them; not empty.
        logprobs: Natural-log probability of each of ``completion_ids`` when sampled;
            0.0 where ``mask`` is 0.
        mask: 1 for a token that the loss covers, else 0.
    """

    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float]
    mask: list[int]
    buckets: list[Bucket]


def row_of(
    rollout: Trajectory, builder: BatchBuilder, most: int, end: int
) -> CompletionRow:
    """Return a rollout's row: the sequence of calls with the most trained tokens.

    TRL takes one completion per rollout, so other sequences, e.g. of a team's other
    roles, are left out, and calls after ``most`` tokens. Without a trained call, the
    whole row is masked.
    """
    calls = rollout.model_calls
    sequences, buckets = builder.sequences(rollout)
    chosen = max(sequences, key=lambda s: _trained_within(s, most), default=None)
    kept = [] if chosen is None else _kept(chosen, most)
    for place, call in enumerate(calls):
        if buckets[place] == TRAINED and not _has(kept, call):
            is_cut = chosen is not None and _has(chosen.calls, call)
            buckets[place] = Bucket("masked", CUT if is_cut else OTHER_SEQUENCE)
    if chosen is None or not kept:
        prompt = next((c.prompt_ids for c in calls if c.prompt_ids), [end])
        return CompletionRow(list(prompt), [end], [0.0], [0], buckets)
    start, stop = len(kept[0].prompt_ids), _end(kept[-1])
    mask, logprobs = [0] * (stop - start), [0.0] * (stop - start)
    for token in chosen.trained:
        if token.position < stop:
            mask[token.position - start] = 1
            logprobs[token.position - start] = token.logprob
    ids = chosen.ids
    return CompletionRow(ids[:start], ids[start:stop], logprobs, mask, buckets)


def _has(calls: Sequence[ModelCall], call: ModelCall) -> bool:
    return any(call is each for each in calls)


def _end(call: ModelCall) -> int:
    return len(call.prompt_ids) + len(call.response_ids)


def _kept(sequence: TrainingSequence, most: int) -> Sequence[ModelCall]:
    """Return the calls that end within the first ``most`` tokens of the completion."""
    start = len(sequence.calls[0].prompt_ids)
    return [call for call in sequence.calls if _end(call) - start <= most]


def _trained_within(sequence: TrainingSequence, most: int) -> int:
    limit = len(sequence.calls[0].prompt_ids) + most
    return sum(token.position < limit for token in sequence.trained)


# Settings of GRPOConfig that change how TRL samples, except with these values.
_OFF: Mapping[str, Sequence[Any]] = {
    "use_vllm": (False,),
    "top_p": (1.0,),
    "top_k": (0, None),
    "min_p": (None, 0.0),
    "repetition_penalty": (1.0,),
    "generation_kwargs": (None, {}),
}


def check_trainer(trainer: "GRPOTrainer") -> None:
    """Check that TRL's trainer leaves sampling and tools to the agent."""
    for name, neutral in _OFF.items():
        if (value := getattr(trainer.args, name)) not in neutral:
            raise UnsupportedError(
                f"GRPOConfig({name}={value!r}): the agent is answered by a model in "
                "this process, which samples from the whole distribution, as TRL's "
                f"log-probabilities suppose. Set {name}={neutral[0]!r}."
            )
    if trainer.tools:
        raise UnsupportedError(
            "GRPOTrainer has tools or an environment_factory: the agent brings its "
            "own tools. Leave both out."
        )
    if (count := trainer.accelerator.num_processes) > 1:
        raise UnsupportedError(
            f"GRPOTrainer runs in {count} processes: AgentRollouts works in one, on "
            "one device. Start it without `accelerate launch`, or train on several "
            "GPUs with `agentgym train --engine verl`."
        )


def load_policy(config: TrainingConfig, trainer: "GRPOTrainer") -> "LocalPolicy":
    """Load the model that answers the agent's requests, on the trainer's device."""
    # bfloat16 would lose an adapter's first updates, which are smaller than the last
    # bit of the weights.
    import torch

    from agentgym.engines.local.loading import load_model
    from agentgym.engines.local.policy import LocalPolicy

    device = trainer.accelerator.device.type
    if device not in ("cpu", "cuda"):
        raise UnsupportedError(
            f"GRPOTrainer trains on the device {device!r}: AgentRollouts works on a "
            "CPU or a CUDA device. Set use_cpu=True in GRPOConfig."
        )
    model, is_adapted = _unwrapped(trainer)
    is_half = model.dtype is torch.bfloat16 and not is_adapted
    usual: Precision = "bf16" if is_half else "float32"
    loaded = load_model(
        config.model,
        device=device,
        rank=None,
        seed=config.seed,
        precision=usual if config.precision == "auto" else config.precision,
        template=config.template,
    )
    policy = LocalPolicy(loaded)
    policy.tokens.check_ends(imitates=False)
    return policy


def copy_weights(trainer: "GRPOTrainer", policy: "LocalPolicy") -> None:
    """Copy the trainer's weights to the model that answers the agent's requests."""
    from agentgym.engines.adapter import plain_weights

    step = trainer.state.global_step
    policy.copy_weights(plain_weights(_unwrapped(trainer)[0]), version=step)


def _unwrapped(trainer: "GRPOTrainer") -> tuple[Any, bool]:
    """Return the trainer's model without wrappers, and whether it has an adapter."""
    from peft import PeftModel

    model = trainer.accelerator.unwrap_model(trainer.model)
    if isinstance(model, PeftModel):
        return model.get_base_model(), True
    return model, False


_SETTINGS = (
    *(f"agent.{name}" for name in AgentSource.model_fields),
    "chat_template",
    "chat_template_kwargs",
    "concurrency",
    "max_attempts",
    "max_tokens",
    "model",
    "precision",
    "rollout_timeout_s",
    "seed",
    "thinking",
    "tool_format",
    "train_roles",
    "train_tokens",
    "unsafe_local_exec",
    "workers",
)
_TASK = "task"  # key in a prompt's message; its value is the task as JSON


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
        settings = TrainingConfig.flat(settings)
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
        """Attempt the task of each prompt with the trainer's newest weights."""
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
