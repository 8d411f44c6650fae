"""Updates: run one update in verl's workers, and compute its metrics."""

import math
from collections.abc import Sequence
from itertools import chain
from statistics import fmean, pstdev
from typing import Any

from agentgym.plugins.verl.rows import UpdateRow, divisible, to_tensors

# Number of rows per batch whose single tokens are measured before and after an update.
_MEASURED_ROWS = 8
_EPSILON = 1e-8


def gae(
    returns: Sequence[float], values: Sequence[float], lam: float
) -> tuple[list[float], list[float]]:
    """Compute advantages by generalised advantage estimation (arXiv:1506.02438).

    ``A_t = sum over l of lam^l d_(t+l)`` with ``d_t = r_t + V_(t+1) - V_t``, where V is
    0 after the last token. The discount is 1. The reward r_t is the return of token t
    minus the return of the next token, so that the rewards from t on add up to the
    return of t.
    """
    advantages: list[float] = []
    advantage = after = value_after = 0.0
    for earned, value in zip(reversed(returns), reversed(values), strict=True):
        reward = earned - after
        advantage = reward + value_after - value + lam * advantage
        advantages.insert(0, advantage)
        after, value_after = earned, value
    return advantages, [a + v for a, v in zip(advantages, values, strict=True)]


def with_advantages(
    rows: Sequence[UpdateRow], values: Sequence[Sequence[float]], lam: float
) -> list[UpdateRow]:
    """Return rows with advantages instead of returns, and with ``targets``.

    The advantages (:func:`gae`) are scaled to mean 0 and standard deviation 1 over the
    batch. ``values`` has for each row the value model's prediction before each trained
    token.
    """
    found = [
        gae([earned for _, _, earned in row["trained"]], own, lam)
        for row, own in zip(rows, values, strict=True)
    ]
    every = list(chain.from_iterable(advantages for advantages, _ in found))
    mean, spread = fmean(every), pstdev(every) + _EPSILON
    return [
        {
            **row,
            "trained": [
                (position, logprob, (advantage - mean) / spread)
                for (position, logprob, _), advantage in zip(
                    row["trained"], advantages, strict=True
                )
            ],
            "targets": targets,
        }
        for row, (advantages, targets) in zip(rows, found, strict=True)
    ]


class Updates:
    """Trains on rows (training sequences) with verl's workers.

    Args:
        workers: A worker group of :class:`~agentgym.plugins.verl.learner.VerlLearner`,
            or a single worker.
        config: verl's configuration.
        ranks: Number of workers among which each batch is divided.
    """

    def __init__(self, workers: Any, config: Any, ranks: int) -> None:
        self._workers, self._config, self._ranks = workers, config, ranks

    def learn(
        self, rows: Sequence[UpdateRow], rate: float, temperature: float
    ) -> dict[str, Any]:
        """Do one optimizer step on ``rows``; return its metrics.

        The names of the metrics are those of :class:`UpdateMetrics`. With a value
        model, ``value_loss`` is one more.
        """
        from verl.utils import tensordict_utils

        actor, critic = self._config.actor_rollout_ref.actor, self._config.critic
        padded = divisible(rows, self._ranks)
        more: dict[str, float] = {}
        if critic.enable:
            [values] = self._of_tokens("compute_values", padded, temperature, "values")
            padded = with_advantages(padded, values, self._config.algorithm.lam)
            done = self._workers.update_critic(self._mini_batch(padded, temperature))
            found = tensordict_utils.get(done, "metrics")
            more["value_loss"] = _number(found["value_loss"])
        if actor.use_kl_loss:
            [reference] = self._of_tokens(
                "compute_reference", padded, temperature, "log_probs"
            )
            padded = [
                {**row, "reference": own}
                for row, own in zip(padded, reference, strict=True)
            ]
        some = rows[:_MEASURED_ROWS]
        learned, entropies = self._of_tokens(
            "compute_log_prob",
            divisible(some, self._ranks),
            temperature,
            "log_probs",
            "entropy",
        )
        flat = self._step(padded, rate, temperature)
        moved = self._moved(some, temperature)
        if actor.use_kl_loss:
            more["reference_kl"] = flat["kl_loss"]
        return {
            "loss": flat["actor/pg_loss"],
            "grad_norm": flat["grad_norm"],
            "entropy": flat["actor/entropy_loss"],
            "clip_fraction": flat["clipped"],
            "gap": flat["gap"],
            "kl": fmean(chain.from_iterable(moved)),
            "learned": learned[: len(some)],
            "entropies": entropies[: len(some)],
            "moved": moved,
            **more,
        }

    def imitate(self, rows: Sequence[UpdateRow], rate: float) -> dict[str, float]:
        """Do one optimizer step of supervised fine-tuning."""
        self._workers.set_loss(imitates=True)
        try:
            flat = self._step(divisible(rows, self._ranks), rate, 1.0)
        finally:
            self._workers.set_loss(imitates=False)
        return {"loss": flat["nll"], "grad_norm": flat["grad_norm"]}

    def measure(self, rows: Sequence[UpdateRow]) -> float:
        """Return the mean negative log-probability of the trained tokens, in nats."""
        padded = divisible(rows, self._ranks)
        [found] = self._of_tokens("compute_log_prob", padded, 1.0, "log_probs")
        return -fmean(chain.from_iterable(found))

    def _step(
        self, rows: Sequence[UpdateRow], rate: float, temperature: float
    ) -> dict[str, float]:
        """Do one optimizer step with the workers' current loss; return its metrics."""
        from verl.utils import tensordict_utils

        self._workers.set_rate(rate)
        answer = self._workers.update_actor(self._mini_batch(rows, temperature))
        found = tensordict_utils.get(answer, "metrics")
        return {key: _number(value) for key, value in found.items()}

    def _mini_batch(self, rows: Sequence[UpdateRow], temperature: float) -> Any:
        """Convert rows to a batch that verl trains in one optimizer step."""
        from verl.utils import tensordict_utils

        data = self._batch(rows, temperature)
        tensordict_utils.assign_non_tensor(
            data,
            calculate_entropy=True,
            distillation_use_topk=False,
            global_batch_size=len(rows),
            mini_batch_size=len(rows),
            epochs=1,
            seed=0,
            dataloader_kwargs={"shuffle": False},
            compute_loss=True,
        )
        return data

    def _of_tokens(
        self, verb: str, rows: Sequence[UpdateRow], temperature: float, *names: str
    ) -> list[list[list[float]]]:
        """Run a method of the workers; return its results for the trained tokens."""
        from verl.utils import tensordict_utils
        from verl.workers.utils.padding import no_padding_2_padding

        data = self._batch(rows, temperature)
        tensordict_utils.assign_non_tensor(
            data, calculate_entropy="entropy" in names, compute_loss=False
        )
        answer = getattr(self._workers, verb)(data)
        padded = [
            no_padding_2_padding(answer[name], data).float().tolist() for name in names
        ]
        return [
            [
                [own[position - row["start"]] for position, _, _ in row["trained"]]
                for row, own in zip(rows, found, strict=True)
            ]
            for found in padded
        ]

    def _batch(self, rows: Sequence[UpdateRow], temperature: float) -> Any:
        """Convert rows to a batch in the form that verl's workers take."""
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

    def _moved(
        self, rows: Sequence[UpdateRow], temperature: float
    ) -> list[list[float]]:
        """Return for each row how far the policy has moved from sampling."""
        padded = divisible(rows, self._ranks)
        [found] = self._of_tokens("compute_log_prob", padded, temperature, "log_probs")
        apart = (
            [
                now - logprob
                for (_, logprob, _), now in zip(row["trained"], own, strict=True)
            ]
            for row, own in zip(rows, found, strict=False)
        )
        return [[math.exp(each) - 1 - each for each in own] for own in apart]


def _number(value: Any) -> float:
    """Return a metric as a number; for a list, its first value.

    verl gives a list with one value per mini-batch; AgentGym's updates have only one.
    """
    while isinstance(value, list | tuple):
        value = value[0] if value else math.nan
    return float(value)
