"""VllmEngines: check settings for vLLM before anything starts; create the engine."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from agentgym.core.background import in_background
from agentgym.core.config import AUTO_ENGINE, TrainingConfig
from agentgym.core.machines import elsewhere_hint
from agentgym.core.policy import ChatRequest, Policy, ServedPolicy
from agentgym.engines.base import Engine, EngineFactory, EngineSummary
from agentgym.engines.device import describe_device, free_gpu
from agentgym.engines.environments import Checked
from agentgym.engines.lengths import CPU_IN_FLIGHT, paced
from agentgym.engines.local.shape import Shape, Use
from agentgym.engines.local.support import path_of, require_libraries
from agentgym.engines.memory import (
    EPISODES,
    GIB,
    MARGIN,
    MemoryEstimate,
    check_memory,
    gib,
    shape_of,
    told_use,
    with_episodes,
)
from agentgym.engines.settings import context_length, log_file
from agentgym.errors import (
    AgentGymError,
    GPUNotAvailableError,
    ModelError,
    NotEnoughMemoryError,
    UnsupportedError,
    UsageError,
)
from agentgym.models.chat_template import form_of
from agentgym.models.folder import NANO, describe_model, is_small
from agentgym.plugins.vllm import settings
from agentgym.plugins.vllm.environment import (
    ENVIRONMENT,
    check,
    is_for_cpu,
    require_command,
)
from agentgym.plugins.vllm.group import GpuSettings, VllmSettings
from agentgym.plugins.vllm.settings import (
    learner_config,
    memory_share,
    on_cpu,
    shares_gpu,
    shown,
    trained_rank,
    vllm_settings,
)

_FOR_CPU = (
    "vLLM's build for CPUs is slow, and shows that a setup works: `agentgym engine "
    "install vllm --cpu`."
)
_NOT_INSTALLED = (
    "vLLM, which is made to sample on a GPU, is not installed for it: `agentgym engine "
    "install vllm` does (20 GB), and later runs then take it"
)
_ANSWERS_S = 120.0
# Assumed GPU memory of vLLM awake for CUDA, CUDA graphs and activations, in addition to
# its weights and KV cache; and of vLLM while it sleeps.
SERVER_BYTES = 5 * GIB // 2
ASLEEP_BYTES = 3 * GIB // 2
_USUAL = 0.5  # vLLM's share of the GPU's memory, if vLLM and the learner fit with it
_HALF = 2  # bytes per number in vLLM, which computes in bfloat16 on a GPU


class VllmEngines(EngineFactory):
    """Creates engines that sample with vLLM and train in this process."""

    environment = ENVIRONMENT
    imitates = True
    supports = frozenset(
        (
            "gpus.per_node",
            "gpus.tensor_parallel",
            "gpus.memory_share",
            "vllm.settings",
            "precision",
            "gradient_checkpointing",
            "kl_coefficient",
            "ratio_limit",
        )
    )

    def check(self, config: TrainingConfig) -> EngineSummary:
        """Check settings, environment and GPUs; raise an error at the first problem."""
        if config.gpu not in ("auto", "local", "none"):
            raise UnsupportedError(
                f"gpu = {config.gpu!r} with engine = 'vllm': it computes on this "
                "machine. Leave --gpu out, set it to none for the CPU, or choose "
                "--engine local."
            )
        vllm_settings(config)
        model = describe_model(config.model, trained_rank(config))
        require_libraries("Learning with vLLM")
        require_command()
        place = _place(config)
        settings.free_port(VllmSettings.of(config).settings.get("port"))
        form = form_of(config.model, config.template)
        adapts = bool(trained_rank(config))
        path = path_of(config.model, is_adapter=adapts, samples=False)
        return EngineSummary(
            model, place, _memory(config), form.name, path, form.drops_reasoning
        )

    def paced(self, config: TrainingConfig) -> TrainingConfig:
        """Fill in unset limits to fit the memory and speed of the device."""
        config = with_turns(config)
        if not on_cpu(config) or is_small(config.model):
            return config
        return paced(config, in_flight=CPU_IN_FLIGHT)

    def announced(self, config: TrainingConfig) -> str:
        """Return a message that vLLM starts, with the path of its log."""
        return f"vLLM starts, which takes a minute or more; its log: {log_file(config)}"

    def composed(self, config: TrainingConfig) -> str:
        """Return the command that starts vLLM, as text for a shell."""
        try:
            program = str(require_command())
        except UsageError:
            program = "vllm"
        return shown(config, program)

    def examine(self) -> Iterator[Checked]:
        """Check environment and machine, then vLLM with the built-in model nano."""
        gpu = "none" if is_for_cpu() else "auto"
        yield from with_trial(check(), self, "vllm", gpu)

    def create(self, config: TrainingConfig) -> Engine:
        """Start vLLM, load the model, and wait until both are ready."""
        from agentgym.plugins.vllm.engine import VllmEngine

        self.check(config)
        _memory(config, fetch=True)
        return VllmEngine.create(config)


def suits(config: TrainingConfig) -> bool:
    """Return whether a run's settings suit vLLM; the GPU is not checked."""
    if config.deterministic or config.role_adapters:
        return False
    try:
        return not is_small(config.model) and trained_rank(config) > 0
    except ModelError:  # checking the engine reports it
        return False


def named(config: TrainingConfig) -> str:
    """Return the engine's name for ``engine = "auto"``, without a look at the GPU."""
    return "vllm" if VllmSettings.of(config).settings else "local"


def elsewhere(config: TrainingConfig) -> str:
    """Return the value of ``engine`` for a run on another machine.

    ``auto`` stays ``auto`` if vLLM suits the model: whether vLLM or the local engine is
    used then depends on the other machine's GPU.
    """
    if VllmSettings.of(config).settings:
        return "vllm"
    return AUTO_ENGINE if suits(config) else "local"


def chosen(config: TrainingConfig) -> tuple[str, str]:
    """Choose the engine for ``engine = "auto"``, and return its name and a note.

    The engine is ``vllm`` if the settings have flags of vLLM. It is ``vllm``, too, if
    the settings suit vLLM, vLLM is installed, and vLLM and the learner both fit on this
    machine's GPU. Otherwise it is ``local``. The note, for the run's plan, says why
    vLLM is not used; often empty.
    """
    if VllmSettings.of(config).settings:
        return "vllm", ""
    if config.gpu == "none" or not (settings.visible_gpus() and suits(config)):
        return "local", ""
    free, has_half = free_gpu()
    if free is not None and not has_half:
        return "local", ""
    turns = turns_of(with_turns(config)) if shares_gpu(config) else None
    if turns is not None and turns.problem:
        return "local", f"sampled in this process, not by vLLM: {turns.problem}"
    try:
        require_command()
    except UsageError:
        return "local", _NOT_INSTALLED
    return ("local", _NOT_INSTALLED) if is_for_cpu() else ("vllm", "")


def _memory(config: TrainingConfig, *, fetch: bool = False) -> str:
    """Check that learner and vLLM fit into memory; describe the learner's memory."""
    words = check_memory(
        learner_config(config),
        "cpu" if on_cpu(config) else "cuda",
        fetch=fetch,
        samples=False,
        others=ASLEEP_BYTES if shares_gpu(config) else 0,
    )
    check_turns(config)
    return words


def _place(config: TrainingConfig) -> str:
    """Describe the devices of vLLM and of the learner."""
    if on_cpu(config):
        if not is_for_cpu():
            raise UsageError(
                f"gpu = 'none', and the vLLM in {ENVIRONMENT.folder} is built for "
                f"GPUs. {_FOR_CPU}"
            )
        return f"{describe_device('cpu')}, shared with vLLM"
    if is_for_cpu():
        raise UsageError(
            f"gpu = {config.gpu!r}, and the vLLM in {ENVIRONMENT.folder} is built for "
            f"CPUs: set --gpu none, or make the one for GPUs. {ENVIRONMENT.advice}"
        )
    wanted, found = GpuSettings.of(config).per_node, settings.visible_gpus()
    if not found:
        raise GPUNotAvailableError(
            "engine = 'vllm', and this machine has no NVIDIA GPU that it may use "
            "(/dev/nvidia*, CUDA_VISIBLE_DEVICES). Use --engine local, which learns "
            f"on the CPU too. {_FOR_CPU} {elsewhere_hint()}"
        )
    if len(found) < wanted:
        raise GPUNotAvailableError(
            f"gpus.per_node = {wanted}, and this machine has {len(found)} NVIDIA GPUs "
            "that it may use (/dev/nvidia*, CUDA_VISIBLE_DEVICES). Lower it."
        )
    if wanted == 1:
        return "one GPU, by turns with vLLM"
    return f"{wanted} GPUs, vLLM on all but the first"


@dataclass(frozen=True)
class Turns:
    """Memory of one GPU that vLLM and the learner take in turn, in bytes."""

    free: int  # of the GPU
    served: int  # vLLM's weights, the adapter, the cache of the longest conversation
    kept: int  # by the learner while vLLM answers
    update: int  # of the learner during an update, with a margin

    @classmethod
    def of(
        cls, shape: Shape, use: Use, parameters: int | None, *, context: int, free: int
    ) -> Self:
        """Estimate the memory of a model in vLLM and in the learner."""
        learner = MemoryEstimate.of(shape, replace(use, samples=False), parameters)
        numbers = (parameters or shape.parameters) + shape.adapter_parameters(use.rank)
        numbers += context * shape.cache_token + shape.cache_fixed
        return cls(free, _HALF * numbers, learner.kept, int(MARGIN * learner.need))

    @property
    def least(self) -> float:
        """Smallest share of the GPU's memory, 0..1, that is enough for vLLM."""
        return math.ceil(100 * (self.served + SERVER_BYTES) / self.free) / 100

    @property
    def most(self) -> float:
        """Largest share for vLLM, 0..1, that leaves enough for the waiting learner."""
        return math.floor(100 * (1 - self.kept / self.free)) / 100

    @property
    def share(self) -> float | None:
        """Best share for vLLM, 0..1; None if vLLM and the learner do not both fit."""
        if self.least > self.most or self.update + ASLEEP_BYTES > self.free:
            return None
        return min(max(_USUAL, self.least), self.most)

    @property
    def problem(self) -> str:
        """Why the GPU is too small for vLLM and the learner; empty if both fit."""
        if self.share is not None:
            return ""
        words = f"the GPU has {gib(self.free)} GiB free, and "
        if self.least > self.most:
            awake = gib(self.served + SERVER_BYTES)
            return f"{words}vLLM needs {awake} next to {gib(self.kept)} of the learner"
        asleep = gib(ASLEEP_BYTES)
        return f"{words}an update needs {gib(self.update)} next to {asleep} of vLLM"


def turns_of(config: TrainingConfig) -> Turns | None:
    """Estimate how vLLM and the learner share the GPU; None if a size is unknown."""
    known = shape_of(config.model)
    free, has_half = free_gpu()
    if known is None or not free:
        return None
    shape, held = known
    use = told_use(learner_config(config), on_gpu=True, has_half=has_half)
    given = VllmSettings.of(config).settings.get("max_model_len")
    context = given if isinstance(given, int) else context_length(config)
    return Turns.of(shape, use, held, context=context, free=free)


def with_turns(config: TrainingConfig) -> TrainingConfig:
    """Fill in ``gpus.memory_share`` and ``max_episode_tokens`` to fit the GPU's memory.

    Nothing is filled in if the model's size is unknown, or if no values fit, for which
    :func:`check_turns` raises an error. If vLLM and the learner do not share a GPU,
    only ``max_episode_tokens`` is filled in.
    """
    if not shares_gpu(config):
        return with_episodes(config, "cpu" if on_cpu(config) else "cuda", samples=False)
    given = config.max_episode_tokens
    for tokens in EPISODES if given is None else (given,):
        shorter = config.replaced(max_episode_tokens=tokens)
        turns = turns_of(shorter)
        if turns is None:
            return config
        if (share := turns.share) is not None:
            share = GpuSettings.of(config).memory_share or share
            return shorter.replaced(**{"gpus.memory_share": share})
    return config


def check_turns(config: TrainingConfig) -> None:
    """Check that vLLM and the learner fit into one GPU's memory."""
    turns = turns_of(config) if shares_gpu(config) else None
    if turns is None:
        return
    share, free = memory_share(config), turns.free
    if turns.kept > (1 - share) * free:
        raise NotEnoughMemoryError(
            f"gpus.memory_share = {share} leaves {gib(int((1 - share) * free))} of the "
            f"GPU's {gib(free)} GiB free, and the learner of {config.model!r} keeps "
            f"{gib(turns.kept)} GiB while vLLM answers (weights, adapter, optimizer, "
            f"CUDA). {_advice(turns, turns.most, 'less')}"
        )
    if turns.served > share * free:
        raise NotEnoughMemoryError(
            f"gpus.memory_share = {share} gives vLLM {gib(int(share * free))} of the "
            f"GPU's {gib(free)} GiB free, and {config.model!r} takes "
            f"{gib(turns.served)} GiB there: weights, and the cache of one "
            "conversation. "
            f"{_advice(turns, turns.least, 'more')}"
        )


def _advice(turns: Turns, bound: float, side: str) -> str:
    if problem := turns.problem:
        return (
            f"No value is enough: {problem}. Leave --engine out or set it to local, "
            "take a smaller model, or give each a GPU: gpus.per_node = 2."
        )
    return f"Set gpus.memory_share to {bound:g} or {side}, or leave it out."


def with_trial(
    found: Sequence[Checked], factory: EngineFactory, engine: str, gpu: str = "auto"
) -> Iterator[Checked]:
    """Yield the checks ``found``; if all passed, also the check of a started engine."""
    yield from found
    if all(each.is_good for each in found):
        yield _trial(factory, engine, gpu)
    else:
        yield Checked(
            "start", False, "nothing was started: see the missing parts above"
        )


def _trial(factory: EngineFactory, engine: str, gpu: str) -> Checked:
    """Start an engine with the tiny model nano, and check that it answers."""
    import httpx

    begun = time.monotonic()
    with TemporaryDirectory(prefix="agentgym-check-") as folder:
        config = TrainingConfig.create(
            engine=engine, model=NANO, gpu=gpu, output=Path(folder)
        )
        try:
            with closing(factory.create(config)) as started, started.sampling():
                _ask(started.policy)
        except (AgentGymError, httpx.HTTPError) as error:
            return Checked("start", False, f"{NANO} did not answer: {error}")
    took = time.monotonic() - begun
    return Checked("start", True, f"{NANO} answered, {took:.0f} s after its start")


def _ask(policy: object) -> None:
    """Send one short request to the policy of an engine."""
    import httpx

    messages = [{"role": "user", "content": "Hello"}]
    if isinstance(policy, ServedPolicy):
        httpx.post(
            f"{policy.servers[0]}/chat/completions",
            json={"model": policy.model_name, "messages": messages, "max_tokens": 8},
            headers={"Authorization": f"Bearer {policy.api_key}"},
            timeout=_ANSWERS_S,
            trust_env=False,
        ).raise_for_status()
    elif isinstance(policy, Policy):
        in_background(_chat(policy, ChatRequest(messages, max_tokens=8)))


async def _chat(policy: Policy, request: ChatRequest) -> None:
    try:
        await policy.chat(request)
    finally:
        await policy.release()
