"""Load the model that answers an agent's requests while TRL trains another copy."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentgym.core.config import TrainingConfig
from agentgym.errors import UnsupportedError

if TYPE_CHECKING:
    from trl.trainer.grpo_trainer import GRPOTrainer

    from agentgym.engines.local.policy import LocalPolicy

_OFF: Mapping[str, Sequence[Any]] = {
    "use_vllm": (False,),
    "top_p": (1.0,),
    "top_k": (0, None),
    "min_p": (None, 0.0),
    "repetition_penalty": (1.0,),
    "generation_kwargs": (None, {}),
}
"""Settings of GRPOConfig that change how TRL samples, except with these values.
"""


def check_trainer(trainer: "GRPOTrainer") -> None:
    """Check that TRL's trainer leaves sampling and tools to the agent.

    Raises:
        UnsupportedError: The trainer samples differently, has tools, or runs in several
            processes; the message names the setting to change.
    """
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
    """Load the model that answers the agent's requests, on the trainer's device.

    With ``precision="auto"``, the loaded model is bfloat16 if the trainer's model is,
    else float32. If TRL trains an adapter, the loaded model is always float32, since
    bfloat16 would lose the first updates: they are smaller than the last bit of the
    weights.
    """
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
    precision = config.precision
    if precision == "auto":
        precision = "bf16" if is_half else "float32"
    loaded = load_model(
        config.model,
        device=device,
        rank=None,
        seed=config.seed,
        precision=precision,
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
