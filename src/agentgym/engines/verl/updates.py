"""Updates: one update in verl's workers, and its metrics."""

import math
from collections.abc import Sequence
from typing import Any

from agentgym.engines.verl.protocol import UpdateRow
from agentgym.engines.verl.rows import divisible, to_tensors

_MEASURED_ROWS = 8


class Updates:
    """Trains on rows.

    Args:
        workers: A worker group of :class:`~agentgym.engines.verl.learner.VerlLearner`,
            or one.
        config: verl's composed configuration.
        ranks: Number of workers that share a batch.
    """

    def __init__(self, workers: Any, config: Any, ranks: int) -> None:
        self._workers, self._config, self._ranks = workers, config, ranks

    def learn(
        self, rows: Sequence[UpdateRow], rate: float, temperature: float
    ) -> dict[str, float]:
        """Take one optimizer step on ``rows``; return its metrics.

        Args:
            rows: At least one; all of them are one mini-batch.
            rate: The learning rate.
            temperature: Sampling temperature.
        """
        actor = self._config.actor_rollout_ref.actor
        flat = self._step(rows, rate, temperature, calculate_entropy=True)
        return {
            "loss": flat["actor/pg_loss"],
            "grad_norm": flat["grad_norm"],
            "entropy": flat["actor/entropy_loss"],
            "clip_fraction": flat["clipped"],
            "gap": flat["gap"],
            "kl": self._moved(rows, temperature),
            "rate": rate,
            "clip": float(actor.clip_ratio),
        }

    def imitate(self, rows: Sequence[UpdateRow], rate: float) -> dict[str, float]:
        """Take one step of supervised fine-tuning on ``rows``, weighted by advantages.

        Returns:
            ``loss`` before the step, per trained token in nats, and ``grad_norm``.
        """
        self._workers.set_loss(imitates=True)
        try:
            flat = self._step(rows, rate, 1.0, calculate_entropy=False)
        finally:
            self._workers.set_loss(imitates=False)
        return {"loss": flat["nll"], "grad_norm": flat["grad_norm"]}

    def measure(self, rows: Sequence[UpdateRow]) -> float:
        """Return the mean negative log-probability of the trained tokens."""
        now, data = self._log_probs(divisible(rows, self._ranks), 1.0)
        return -float(now[data["response_mask"].bool()].mean())

    def _step(
        self,
        rows: Sequence[UpdateRow],
        rate: float,
        temperature: float,
        *,
        calculate_entropy: bool,
    ) -> dict[str, float]:
        """Take one optimizer step with the workers' loss; return its metrics."""
        from verl.utils import tensordict_utils

        padded = divisible(rows, self._ranks)
        data = self._batch(padded, temperature)
        tensordict_utils.assign_non_tensor(
            data,
            calculate_entropy=calculate_entropy,
            distillation_use_topk=False,
            global_batch_size=len(padded),
            mini_batch_size=len(padded),
            epochs=1,
            seed=0,
            dataloader_kwargs={"shuffle": False},
            compute_loss=True,
        )
        self._workers.set_rate(rate)
        answer = self._workers.update_actor(data)
        found = tensordict_utils.get(answer, "metrics")
        return {key: _number(value) for key, value in found.items()}

    def _batch(self, rows: Sequence[UpdateRow], temperature: float) -> Any:
        """Convert rows to the batch that verl's workers take."""
        from tensordict import TensorDict
        from verl.utils import tensordict_utils
        from verl.workers.utils.padding import left_right_2_no_padding

        actor = self._config.actor_rollout_ref.actor
        longest = max(len(row["ids"]) for row in rows)
        data = left_right_2_no_padding(TensorDict(to_tensors(rows), len(rows)))
        tensordict_utils.assign_non_tensor(
            data,
            temperature=temperature,
            use_dynamic_bsz=True,
            max_token_len_per_gpu=max(actor.ppo_max_token_len_per_gpu, longest),
        )
        return data

    def _moved(self, rows: Sequence[UpdateRow], temperature: float) -> float:
        """Return the mean k3 estimate between sampling and now, over some tokens."""
        some = divisible(rows[:_MEASURED_ROWS], self._ranks)
        now, data = self._log_probs(some, temperature)
        apart = (now - data["old_log_probs"])[data["response_mask"].bool()]
        return float((apart.exp() - 1 - apart).mean())

    def _log_probs(
        self, rows: Sequence[UpdateRow], temperature: float
    ) -> tuple[Any, Any]:
        """Return the log-probabilities of rows' tokens now, and their batch."""
        from verl.utils import tensordict_utils
        from verl.workers.utils.padding import no_padding_2_padding

        data = self._batch(rows, temperature)
        tensordict_utils.assign_non_tensor(
            data, calculate_entropy=False, compute_loss=False
        )
        answer = self._workers.compute_log_prob(data)
        return no_padding_2_padding(answer["log_probs"], data).float(), data


def _number(value: Any) -> float:
    """Return a metric that has one value per mini-batch, of which there is one."""
    while isinstance(value, list | tuple):
        value = value[0] if value else math.nan
    return float(value)
