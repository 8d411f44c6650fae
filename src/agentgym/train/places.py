"""Place: the interface for training on another machine; plugins implement it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from agentgym.core.config import AUTO_ENGINE, TrainingConfig
from agentgym.core.machines import is_elsewhere
from agentgym.core.registry import Registry
from agentgym.evaluate.events import Observer
from agentgym.models.folder import NANO
from agentgym.plugins import registered
from agentgym.train.result import TrainingResult
from agentgym.train.run_folder import RunFolder


@dataclass(frozen=True)
class Elsewhere:
    """A plan for a run on another machine: files to upload and packages to install.

    Attributes:
        machine: Description of the machine.
        uploads: Files to send, with their sizes in bytes.
        installs: Packages to install, as pip names them.
        variables: Names of environment variables to pass on.
        folder: AgentGym's folder on the machine; empty if it is not known yet.
        engine: A sentence about the choice of the engine, if it depends on the
            machine's GPU; otherwise empty.
    """

    config: TrainingConfig
    machine: str
    uploads: dict[str, int]
    installs: list[str]
    variables: list[str] = field(default_factory=list)
    folder: str = ""
    engine: str = ""


@dataclass(frozen=True)
class CostEstimate:
    """Expected costs of a run, by machine: for JSON, and for the terminal (rich)."""

    records: list[dict[str, Any]]
    view: Any


class Place(ABC):
    """A machine, or a provider of machines, to train on.

    Plug-ins register a subclass under the entry point ``agentgym.places``. The setting
    ``gpu`` begins with the registered name, as in ``ssh:user@host``.
    """

    @abstractmethod
    def plan(self, config: TrainingConfig) -> Elsewhere:
        """Return the plan of a run, without contacting the machine.

        Raises:
            UsageError: A setting cannot work on that machine.
        """

    @abstractmethod
    def train(
        self, config: TrainingConfig, run: RunFolder, progress: Observer
    ) -> TrainingResult:
        """Start or resume ``run`` on the other machine, and return its result.

        The settings have paths of the local machine. The caller has locked the run's
        local folder, into which all results are copied.
        """

    def prices(self, config: TrainingConfig) -> CostEstimate | None:
        """Ask for the costs of a run; None (the default) if it costs nothing."""
        return None

    @abstractmethod
    def fetch_results(self, config: TrainingConfig, run: RunFolder) -> str | None:
        """End the training of ``run`` on the machine, and fetch its finished files.

        Called when the run moves to another machine. Returns a sentence on why it could
        not be done; None if it was done or was not needed.
        """


_RENTED = "rented"
MACHINES = "agentgym.machines"
"""The group of functions about machines that may be rented."""
PLACES = Registry(Place, "machine", {}, group="agentgym.places")


def place_of(gpu: str) -> Place:
    """Return the place for the setting ``gpu``, such as ``ssh:user@host``.

    A name that is not registered is taken as a provider of rented machines.
    """
    name = gpu.partition(":")[0]
    return PLACES.get(name if name in PLACES.names() else _RENTED)


def choose_machine(config: TrainingConfig) -> TrainingConfig:
    """Choose a machine for ``gpu="auto"``, maybe a rented one; return the settings.

    If this machine is chosen, ``gpu`` stays ``auto``. If another machine is
    chosen, ``engine="auto"`` becomes ``local`` unless vLLM supports the model.
    """
    if config.gpu == "auto" and config.model != NANO and not config.deterministic:
        config = config.replaced(gpu=registered(MACHINES, "settle")(config))
    registered(MACHINES, "check")(config)
    if is_elsewhere(config.gpu) and config.engine == AUTO_ENGINE:
        from agentgym.engines.registry import remote_engine

        config = config.replaced(engine=remote_engine(config))
    return config


def expected_time(config: TrainingConfig) -> str:
    """Describe how long a run on this machine's GPU is expected to take.

    Returns an empty text if the time is unknown, e.g. on a CPU.
    """
    if config.model == NANO:
        return ""
    return str(registered(MACHINES, "expected_time")(config))
