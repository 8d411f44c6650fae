"""Convert recorded rollouts to verl's DataProto, for your own trainer."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym.core.config import Algorithm
from agentgym.core.trajectory import Trajectory
from agentgym.errors import MissingExtraError, UsageError
from agentgym.models.folder import model_source
from agentgym.train.batch import TOOL_CALLS, BatchBuilder


def to_dataproto(
    trajectories: Sequence[Trajectory],
    model: str,
    *,
    algorithm: Algorithm = "rloo",
    failure_cost: float = 0.2,
    trainable: Mapping[str, bool] | None = None,
    temperature: float = 1.0,
) -> Any:
    """Convert trajectories to a ``verl.DataProto`` for verl's own trainer.

    Rows, mask and advantages are the same as in AgentGym's own training. Each agent of
    a team has its own rows. Model calls that are not trained have no row.
    ``old_log_probs`` holds the log-probabilities at sampling.

    Args:
        trajectories: All attempts at each task: an attempt's advantage is computed by
            comparison with the other attempts at the same task.
        model: Name or folder of the model that sampled the trajectories.
        algorithm: Name of the algorithm that computes advantages.
        failure_cost: Amount subtracted from a model call's advantage for each of its
            tool calls that failed.
        trainable: For each component (a kind of text in a response, such as reasoning),
            whether to train it. None trains the choice of tools and their arguments.
        temperature: Temperature at which the trajectories were sampled.

    Raises:
        MissingExtraError: verl is not installed.
        UsageError: No call can be trained (the message says why), or the algorithm is
            ``ppo``, whose advantages need a value model.
    """
    if algorithm == "ppo":
        raise UsageError(
            "algorithm = 'ppo' gives no advantages here: they need a value model's "
            "predictions. Choose another algorithm, or compute them in your trainer."
        )
    try:
        from tensordict import TensorDict
        from verl import DataProto
    except ImportError:
        raise MissingExtraError("verl", "Making a DataProto") from None
    from transformers import AutoTokenizer

    from agentgym.engines.tokens.responses import ResponseReader
    from agentgym.models.chat_template import ChatTemplate
    from agentgym.plugins.verl.rows import rows_of, to_tensors

    tokenizer = AutoTokenizer.from_pretrained(model_source(model))
    reader = ResponseReader(
        tokenizer,
        ChatTemplate(model, tokenizer).format,
        frozenset({int(tokenizer.eos_token_id)}),
    )
    builder = BatchBuilder(
        algorithm,
        trainable or TOOL_CALLS,
        lambda call: reader.label(call.prompt_ids, call.response_ids, call.tools),
        failure_cost,
    )
    groups: dict[str, list[Trajectory]] = {}
    for rollout in trajectories:
        groups.setdefault(rollout.group or rollout.task_id, []).append(rollout)
    made = builder.build(
        list(groups.values()), lambda r: [r.reward or 0.0] * len(r.model_calls)
    )
    rows = rows_of(made.batch)
    if not rows:
        why = Counter(b.reason for found in made.ledger.values() for b in found)
        reason = why.most_common(1)[0][0] if why else "there are none"
        raise UsageError(f"None of the model calls can be trained: {reason}.")
    tensors = to_tensors(rows)
    return DataProto(
        batch=TensorDict(tensors, len(rows)),
        meta_info={
            "temperature": temperature,
            "global_token_num": tensors["attention_mask"].sum(-1).tolist(),
        },
    )
