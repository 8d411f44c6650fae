"""VerlLearner: verl's worker, with AgentGym's losses, metrics and export."""

import os
from functools import partial
from typing import Any

import torch
import verl.utils.model
from verl.single_controller.base.decorator import (
    Dispatch,
    make_nd_compute_dataproto_dispatch_fn,
    register,
)
from verl.utils import tensordict_utils
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.metric import AggregationType, Metric
from verl.workers.config import TrainingWorkerConfig
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker
from verl.workers.utils.padding import no_padding_2_padding

_CRITIC = "critic"
# Dispatch mode of verl: each process gets its part of a batch.
_OF_ROWS = make_nd_compute_dataproto_dispatch_fn(mesh_name="actor")


class VerlLearner(ActorRolloutRefWorker):
    """One of verl's worker processes, which trains and sends weights to the servers."""

    def __init__(
        self, config: Any, role: str, critic: Any = None, **given: Any
    ) -> None:
        super().__init__(config=config, role=role, **given)
        self._critic_config = critic
        self.critic: Any = None

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        """Load models and optimizers, and set the loss of on-policy updates."""
        super().init_model()
        self.set_loss(imitates=False)
        if self._critic_config is not None:
            self.critic = value_model(self._critic_config)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def set_loss(self, *, imitates: bool) -> None:
        """Choose the loss of the next updates: imitation or the policy loss."""
        actor = self.config.actor
        clip = float(actor.clip_ratio_low), float(actor.clip_ratio_high)
        ours = partial(measured_loss, inner=self.loss_fn, clip=clip)
        self.actor.set_loss_fn(imitation_loss if imitates else ours)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def forget_moments(self) -> None:
        """Reset AdamW's two moments to their values before the first update."""
        self.actor.engine.optimizer.state.clear()

    @register(dispatch_mode=_OF_ROWS)
    def compute_reference(self, data: Any) -> Any:
        """Return the log-probabilities of a batch's tokens in the untrained model."""
        if self.ref is not None:
            return _on_cpu(self.ref.infer_batch(data))
        tensordict_utils.assign_non_tensor(data, no_lora_adapter=True)
        return _on_cpu(self.actor.infer_batch(data))

    @register(dispatch_mode=_OF_ROWS)
    def compute_values(self, data: Any) -> Any:
        """Return the value model's prediction at each token of a batch."""
        return _on_cpu(self.critic.infer_batch(data))

    @register(dispatch_mode=_OF_ROWS)
    def update_critic(self, data: Any) -> Any:
        """Do one optimizer step of the value model; return its metrics."""
        return _on_cpu(self.critic.train_mini_batch(data))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def save_checkpoint(self, folder: str, *given: Any) -> None:
        """Write weights, optimizer and random state of policy and value model.

        Those of the value model are in a subfolder. ``given`` are further arguments of
        verl's own method.
        """
        super().save_checkpoint(folder, *given)
        if self.critic is not None:
            self.critic.save_checkpoint(os.path.join(folder, _CRITIC), *given)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_checkpoint(self, folder: str, *given: Any) -> None:
        """Load a checkpoint of :meth:`save_checkpoint`."""
        super().load_checkpoint(folder, *given)
        if self.critic is not None:
            self.critic.load_checkpoint(os.path.join(folder, _CRITIC), *given)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next update."""
        for group in self.actor.engine.optimizer.param_groups:
            group["lr"] = rate

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def export(self, folder: str, dtype: str) -> None:
        """Write the model (only the adapter, if one is trained) for transformers.

        The tokenizer is not written. ``dtype`` names the number type of the model's
        weights, e.g. ``bfloat16``; it is not used for an adapter.
        """
        adapter = getattr(self.actor.engine.module, "peft_config", None)
        is_first = torch.distributed.get_rank() == 0
        if is_first:
            os.makedirs(folder, exist_ok=True)
        if adapter is not None:
            self._export_adapter(adapter["default"], folder, is_first)
        else:
            self._export_model(getattr(torch, dtype), folder, is_first)
        torch.distributed.barrier()

    def _export_adapter(self, adapter: Any, folder: str, is_first: bool) -> None:
        from safetensors.torch import save_file

        weights = {}
        for name, tensor in self.actor.engine.module.state_dict().items():
            if "lora_" not in name:
                continue
            whole = whole_tensor(tensor)
            if is_first:
                weights[name.replace(".default.", ".")] = whole
        if is_first:
            adapter.save_pretrained(folder)
            save_file(weights, os.path.join(folder, "adapter_model.safetensors"))

    def _export_model(self, dtype: torch.dtype, folder: str, is_first: bool) -> None:
        from huggingface_hub import save_torch_state_dict

        model = self.actor.model_config.hf_config
        weights, generator = {}, self.actor.engine.get_per_tensor_param()[0]
        for name, tensor in generator:
            is_tied = name == "lm_head.weight" and model.tie_word_embeddings
            if is_first and not is_tied:
                weights[name] = whole_tensor(tensor).to(dtype)
        if is_first:
            model.dtype = dtype
            model.save_pretrained(folder)
            save_torch_state_dict(weights, folder)


def imitation_loss(
    model_output: Any, data: Any, dp_group: Any = None
) -> tuple[Any, dict[str, Any]]:
    """Return the loss of supervised fine-tuning, and its metrics.

    The loss is the mean of ``-log p`` over the trained tokens, weighted by advantages.
    """
    now = no_padding_2_padding(model_output["log_probs"], data)
    share = data["dp_size"] / data["batch_num_tokens"]
    padded = data.select("response_mask", "advantages").to_padded_tensor()
    loss = -(now * padded["advantages"] * padded["response_mask"]).sum() * share
    return loss, {"nll": Metric(AggregationType.SUM, loss.detach())}


def _on_cpu(output: Any) -> Any:
    """Move an output to CPU memory; return None if this process has no output."""
    return None if output is None else output.cpu()


def value_model(settings: Any) -> TrainingWorker:
    """Load a value model: the policy's model, with one number per token as output."""
    config = omega_conf_to_dataclass(settings)
    verl.utils.model.load_valuehead_model = _with_value_head
    worker = TrainingWorker(
        TrainingWorkerConfig(
            model_type="value_model",
            model_config=config.model,
            engine_config=config.engine,
            optimizer_config=config.optim,
            checkpoint_config=config.checkpoint,
        )
    )
    worker.reset()
    worker.set_loss_fn(value_loss)
    return worker


def _with_value_head(
    local_path: str, torch_dtype: torch.dtype, model_config: Any, **given: Any
) -> Any:
    """Load a model with a new output layer that returns one number per token.

    verl's own function, which this replaces, ignores the settings and always uses flash
    attention.
    """
    from transformers import AutoModelForTokenClassification

    return AutoModelForTokenClassification.from_pretrained(
        local_path, dtype=torch_dtype, config=model_config, **given
    )


def value_loss(model_output: Any, data: Any, dp_group: Any = None) -> Any:
    """Return the loss of the value model, and its metrics.

    The loss is half the mean squared error at the batch's trained tokens (PPO,
    arXiv:1707.06347). Predictions are not clipped, since each batch is used for only
    one update.
    """
    now = no_padding_2_padding(model_output["values"], data)
    padded = data.select("response_mask", "returns").to_padded_tensor()
    error = (now - padded["returns"]) * padded["response_mask"]
    loss = error.square().sum() / 2 * data["dp_size"] / data["batch_num_tokens"]
    return loss, {"value_loss": Metric(AggregationType.SUM, loss.detach())}


def whole_tensor(tensor: Any) -> torch.Tensor:
    """Return a copy of a tensor in CPU memory; gather its parts from all GPUs."""
    if isinstance(tensor, torch.distributed.tensor.DTensor):
        tensor = tensor.full_tensor()
    whole: torch.Tensor = tensor.detach().cpu().contiguous().clone()
    return whole


def measured_loss(
    model_output: Any,
    data: Any,
    dp_group: Any = None,
    *,
    inner: Any,
    clip: tuple[float, float],
) -> Any:
    """Return the loss and metrics of ``inner``, verl's loss, with two more metrics.

    The metric ``gap`` is the mean absolute difference between a trained token's
    log-probability at sampling and at the learner before the update. The metric
    ``clipped`` is the share of trained tokens whose probability ratio is outside of
    ``1 - clip[0]`` to ``1 + clip[1]``. verl calls the function with the first three
    arguments.
    """
    loss, metrics = inner(model_output=model_output, data=data, dp_group=dp_group)
    with torch.no_grad():
        now = no_padding_2_padding(model_output["log_probs"], data)
        share = data["dp_size"] / data["batch_num_tokens"]
        padded = data.select("response_mask", "old_log_probs").to_padded_tensor()
        apart = (now - padded["old_log_probs"]) * padded["response_mask"]
        change = apart.exp() - 1
        clipped = (change < -clip[0]) | (change > clip[1])
        for name, found in (("gap", apart.abs()), ("clipped", clipped)):
            metrics[name] = Metric(AggregationType.SUM, float(found.sum()) * share)
    return loss, metrics
