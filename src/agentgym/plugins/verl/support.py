"""VerlEngines: check settings for verl before anything starts; create the engine."""

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from agentgym.core.config import TrainingConfig
from agentgym.engines.base import Engine, EngineFactory, EngineSummary
from agentgym.engines.environments import (
    Checked,
    EngineEnvironment,
    imports,
    machine,
)
from agentgym.engines.settings import log_file
from agentgym.errors import (
    EngineError,
    GPUNotAvailableError,
    MissingExtraError,
    UnsupportedError,
    UsageError,
)
from agentgym.models.chat_template import FormReport, form_of
from agentgym.models.folder import describe_model
from agentgym.plugins.verl.group import VerlSettings
from agentgym.plugins.verl.settings import (
    ENVIRONMENT,
    trained_rank,
    value_model_words,
    verl_settings,
)
from agentgym.plugins.vllm.group import GpuSettings
from agentgym.plugins.vllm.support import with_trial

_COMPOSE_S = 120
_CONNECT_S = 5.0


def check() -> list[Checked]:
    """Check the environment, the machine and the Ray cluster; do not start verl."""
    try:
        python = ENVIRONMENT.interpreter()
        if address := os.environ.get("RAY_ADDRESS"):
            _check_cluster(address)
    except UsageError as error:
        return [Checked("environment", False, str(error))]
    found = ENVIRONMENT.packages(python, "verl", "ray", "torch", "vllm")
    return [*found, imports(python, "verl, ray, torch"), *machine()]


class VerlEngines(EngineFactory):
    """Creates engines that train and sample with verl, on one GPU or many."""

    imitates = True
    environment = ENVIRONMENT
    supports = frozenset(
        (
            "gpus.per_node",
            "gpus.tensor_parallel",
            "gpus.memory_share",
            "verl.nodes",
            "verl.offload",
            "verl.settings",
            "kl_coefficient",
        )
    )

    def check(self, config: TrainingConfig) -> EngineSummary:
        """Check settings, environment and GPUs; raise an error at the first problem."""
        if config.gpu not in ("auto", "local"):
            raise UnsupportedError(
                f"gpu = {config.gpu!r} with engine = 'verl': it needs GPUs, of this "
                "machine or of a Ray cluster (RAY_ADDRESS)."
            )
        summary = describe_model(config.model, trained_rank(config))
        verl_settings(config)
        memory = value_model_words(config)
        form = served_form(config, "verl")
        ENVIRONMENT.interpreter()
        nodes, gpus = VerlSettings.of(config).nodes, GpuSettings.of(config).per_node
        self._check_gpus(config)
        place = f"{nodes} x {gpus} GPUs, verl"
        return EngineSummary(
            summary, place, memory, form.name, "", form.drops_reasoning
        )

    def _check_gpus(self, config: TrainingConfig) -> None:
        if address := os.environ.get("RAY_ADDRESS"):
            _check_cluster(address)
            return
        if (nodes := VerlSettings.of(config).nodes) > 1:
            raise UsageError(
                f"verl.nodes = {nodes} needs a Ray cluster: start one "
                "(`ray start`) and set RAY_ADDRESS to its address."
            )
        if os.environ.get("VERL_PLATFORM", "nvidia") != "nvidia":
            return  # verl itself gets the kind of devices
        require_gpus(config, "Lower it, or use a Ray cluster: RAY_ADDRESS.")

    def announced(self, config: TrainingConfig) -> str:
        """Return a message that verl starts, with the path of its log."""
        return f"verl starts, which takes minutes; its log: {log_file(config)}"

    def composed(self, config: TrainingConfig) -> str:
        """Return AgentGym's settings for verl, and verl's whole configuration."""
        return composed_text(ENVIRONMENT, verl_settings(config))

    def examine(self) -> Iterator[Checked]:
        """Check environment and machine, then verl with the built-in model nano."""
        yield from with_trial(check(), self, "verl")

    def create(self, config: TrainingConfig) -> Engine:
        """Start verl, load the model, and wait until its servers answer."""
        from agentgym.plugins.verl.engine import VerlEngine

        self.check(config)
        return VerlEngine.create(config)


def require_gpus(config: TrainingConfig, advice: str) -> None:
    """Raise GPUNotAvailableError if this machine has fewer than ``gpus.per_node``."""
    wanted = GpuSettings.of(config).per_node
    if (found := len(list(Path("/dev").glob("nvidia[0-9]*")))) < wanted:
        raise GPUNotAvailableError(
            f"gpus.per_node = {wanted}, and this machine has {found} NVIDIA GPUs "
            f"(/dev/nvidia*). {advice}"
        )


def served_form(config: TrainingConfig, engine: str) -> FormReport:
    """Return the model's format of tool calls, for an engine without grammars."""
    if find_spec("transformers") is None:
        raise MissingExtraError("local", "Reading the model's tokenizer")
    form = form_of(config.model, config.template)
    if form.constrains:
        raise UnsupportedError(
            f"constrain = 'calls' with engine = {engine!r}: its servers restrict no "
            "tokens. Use the engine local or vllm, or constrain = 'none' for a model "
            "that was trained so."
        )
    return form


def composed_text(
    environment: EngineEnvironment, settings: dict[str, Any], of: str = "verl"
) -> str:
    """Return settings as YAML, then verl's whole configuration with these settings.

    The configuration is left out if ``environment`` does not exist, or if composing it
    takes too long. ``of`` names the trainer, as in :func:`.compose.compose`.
    """
    ours = "# Set by this run, over verl's defaults:\n" + yaml.safe_dump(
        settings, sort_keys=False
    )
    try:
        python = environment.interpreter()
    except UsageError:
        why = "The defaults are shown once the environment exists."
        return f"{ours}# {why} {environment.advice}\n"
    file = Path(__file__).with_name("compose.py")
    try:
        done = subprocess.run(
            [str(python), "-P", str(file), of],
            input=json.dumps(settings),
            capture_output=True,
            text=True,
            timeout=_COMPOSE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return (
            f"{ours}# The defaults are not shown: verl did not answer within "
            f"{_COMPOSE_S} s. Its first start reads gigabytes: run this once more.\n"
        )
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        said = lines[-1].removeprefix("agentgym: ") if lines else "no reason given"
        raise EngineError(f"verl cannot compose its configuration: {said}")
    return f"{ours}---\n# All of verl's settings, with these:\n{done.stdout}"


def _check_cluster(address: str) -> None:
    """Raise UsageError if nothing answers at the address of a Ray cluster."""
    host, _, port = address.rpartition("//")[2].partition("?")[0].rpartition(":")
    if not port.isdecimal():  # Ray itself resolves "auto" and "local"
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"RAY_ADDRESS = {address!r}: nothing answers there ({error}). Start the "
            "cluster (`ray start --head` on its first machine), correct the address, "
            "or unset RAY_ADDRESS to use the GPUs of this machine."
        ) from None
