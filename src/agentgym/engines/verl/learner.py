"""VerlLearner: verl's worker with our learning rate, metrics and export."""

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
_OF_ROWS = make_nd_compute_dataproto_dispatch_fn(mesh_name="actor")
"""Each process gets its part of a batch."""


class VerlLearner(ActorRolloutRefWorker):
    """One process of the actor: it learns, and sends its weights to the servers.

    Args:
        config: verl's settings of the actor.
        role: The actor's parts, in verl's words.
        critic: verl's settings of the value model; None for none.
        given: verl's further arguments.
    """

    def __init__(
        self, config: Any, role: str, critic: Any = None, **given: Any
    ) -> None:
        super().__init__(config=config, role=role, **given)
        self._critic_config = critic
        self.critic: Any = None

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        """Load models and optimizers, and record the inputs of the loss."""
        super().init_model()
        self.set_loss(imitates=False)
        if self._critic_config is not None:
            self.critic = value_model(self._critic_config)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def set_loss(self, *, imitates: bool) -> None:
        """Choose the loss of the next updates."""
        clip = float(self.config.actor.clip_ratio)
        ours = partial(measured_loss, inner=self.loss_fn, clip=clip)
        self.actor.set_loss_fn(imitation_loss if imitates else ours)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def forget_moments(self) -> None:
        """Reset AdamW's state, as it is before the first update."""
        self.actor.engine.optimizer.state.clear()

    @register(dispatch_mode=_OF_ROWS)
    def compute_reference(self, data: Any) -> Any:
        """Return the log-probabilities under the untrained model."""
        if self.ref is not None:
            return _on_cpu(self.ref.infer_batch(data))
        tensordict_utils.assign_non_tensor(data, no_lora_adapter=True)
        return _on_cpu(self.actor.infer_batch(data))

    @register(dispatch_mode=_OF_ROWS)
    def compute_values(self, data: Any) -> Any:
        """Return the value model's prediction at each token."""
        return _on_cpu(self.critic.infer_batch(data))

    @register(dispatch_mode=_OF_ROWS)
    def update_critic(self, data: Any) -> Any:
        """Take one optimizer step of the value model; return its metrics."""
        return _on_cpu(self.critic.train_mini_batch(data))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def save_checkpoint(self, folder: str, *given: Any) -> None:
        """Write weights, optimizer and random state, the value model's in a folder."""
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
        """Write the adapter, or the model, in Hugging Face format; no tokenizer."""
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
    """Return the negative log-probability of trained tokens, weighted by advantages."""
    now = no_padding_2_padding(model_output["log_probs"], data)
    share = data["dp_size"] / data["batch_num_tokens"]
    padded = data.select("response_mask", "advantages").to_padded_tensor()
    loss = -(now * padded["advantages"] * padded["response_mask"]).sum() * share
    return loss, {"nll": Metric(AggregationType.SUM, loss.detach())}


def _on_cpu(output: Any) -> Any:
    """Move an output to CPU memory; only some processes have one."""
    return None if output is None else output.cpu()


def value_model(settings: Any) -> TrainingWorker:
    """Load a value model: the policy's weights, with a head of one number."""
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
    """Load a model with a new head of one number.

    verl's own function takes flash attention whatever the settings say.
    """
    from transformers import AutoModelForTokenClassification

    return AutoModelForTokenClassification.from_pretrained(
        local_path, dtype=torch_dtype, config=model_config, **given
    )


def value_loss(model_output: Any, data: Any, dp_group: Any = None) -> Any:
    """Return the loss of the value model, and its metrics.

    Half the mean squared error at the batch's trained tokens (PPO, arXiv:1707.06347).
    Each batch is used for one update, so predictions need no clip.
    """
    now = no_padding_2_padding(model_output["values"], data)
    padded = data.select("response_mask", "returns").to_padded_tensor()
    error = (now - padded["returns"]) * padded["response_mask"]
    loss = error.square().sum() / 2 * data["dp_size"] / data["batch_num_tokens"]
    return loss, {"value_loss": Metric(AggregationType.SUM, loss.detach())}


def whole_tensor(tensor: Any) -> torch.Tensor:
    """Gather a sharded tensor in CPU memory."""
    if isinstance(tensor, torch.distributed.tensor.DTensor):
        tensor = tensor.full_tensor()
    whole: torch.Tensor = tensor.detach().cpu().contiguous().clone()
    return whole


def measured_loss(
    model_output: Any, data: Any, dp_group: Any = None, *, inner: Any, clip: float
) -> Any:
    """Return verl's loss and metrics, with two further metrics over trained tokens.

    ``gap`` is the mean difference between the sampler's log-probabilities and the
    learner's before the update; ``clipped`` is the share of tokens whose ratio is
    clipped.
    """
    loss, metrics = inner(model_output=model_output, data=data, dp_group=dp_group)
    with torch.no_grad():
        now = no_padding_2_padding(model_output["log_probs"], data)
        share = data["dp_size"] / data["batch_num_tokens"]
        padded = data.select("response_mask", "old_log_probs").to_padded_tensor()
        apart = (now - padded["old_log_probs"]) * padded["response_mask"]
        clipped = (apart.exp() - 1).abs() > clip
        for name, found in (("gap", apart.abs()), ("clipped", clipped)):
            metrics[name] = Metric(AggregationType.SUM, float(found.sum()) * share)
    return loss, metrics
