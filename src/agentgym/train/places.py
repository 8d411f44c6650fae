"""Places: where a run trains if not in this process. They stand above, by name."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pkgutil import resolve_name

from agentgym.core.config import TrainingConfig
from agentgym.core.plugins import Plugins
from agentgym.evaluate.progress import Progress
from agentgym.models.folder import NANO
from agentgym.train.result import TrainingResult
from agentgym.train.run_folder import RunFolder

_SETTLE = "agentgym.compute.auto:settle"


@dataclass(frozen=True)
class Elsewhere:
    """What a run on another machine would send there and install.

    Attributes:
        config: Every setting.
        machine: Where, in words.
        uploads: What is sent, with its bytes.
        installs: What is installed there, as pip names it.
        variables: Environment variables whose values are handed over, by name.
        folder: Where all of it lies there.
    """

    config: TrainingConfig
    machine: str
    uploads: dict[str, int]
    installs: list[str]
    variables: list[str] = field(default_factory=list)
    folder: str = ""


class Place(ABC):
    """A machine, or a way to one, that runs train on. Entry point ``agentgym.places``.

    ``config.gpu`` begins with its name.
    """

    @abstractmethod
    def plan(self, config: TrainingConfig) -> Elsewhere:
        """Say what would be done, without asking the machine.

        Raises:
            UsageError: A setting cannot work there.
        """

    @abstractmethod
    def train(
        self, config: TrainingConfig, run: RunFolder, progress: Progress
    ) -> TrainingResult:
        """Train there what ``run`` holds, from its newest checkpoint if it has one.

        Args:
            config: Of the run, with paths of this machine.
            run: Its folder here, locked; all that is made comes home into it.
            progress: Told what happens.
        """

    @abstractmethod
    def fetch_results(self, config: TrainingConfig, run: RunFolder) -> str | None:
        """End what still trains of ``run``, and fetch what is finished.

        For a run that is to go on in another place. Returns why it could not be done,
        None if it was or there is nothing.
        """


_RENTED = "rented"
PLACES = Plugins(
    Place,
    "machine",
    {
        "ssh": "agentgym.compute.ssh:OverSSH",
        _RENTED: "agentgym.compute.rented:Rented",
    },
    group="agentgym.places",
)


def place_of(gpu: str) -> Place:
    """Return the place that the setting ``gpu`` names.

    What is no place's name is that of a provider, whose machines are rented.
    """
    name = gpu.partition(":")[0]
    return PLACES.get(name if name in PLACES.names() else _RENTED)


def settled(config: TrainingConfig) -> TrainingConfig:
    """Return settings that say where to train: ``auto`` may mean a rented machine.

    Raises:
        ComputeError: The model is too large for this machine, and none can be rented.
    """
    if config.gpu != "auto" or config.model == NANO or config.deterministic:
        return config
    settle: Callable[[TrainingConfig], str] = resolve_name(_SETTLE)
    return config.replaced(gpu=settle(config))
