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
    """The uploads and the installation of a run on another machine.

    Attributes:
        config: Every setting.
        machine: Where, in words.
        uploads: Files to send, with their bytes.
        installs: Packages to install, as pip names them.
        variables: Environment variables whose values are handed over, by name.
        folder: The remote folder.
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
        """Return the plan of a run, without asking the machine.

        Raises:
            UsageError: A setting cannot work there.
        """

    @abstractmethod
    def train(
        self, config: TrainingConfig, run: RunFolder, progress: Progress
    ) -> TrainingResult:
        """Train the run of ``run`` on the machine, from its newest checkpoint if any.

        Args:
            config: Of the run, with paths of this machine.
            run: Its local folder, locked; all results are copied into it.
            progress: Receives the events.
        """

    @abstractmethod
    def fetch_results(self, config: TrainingConfig, run: RunFolder) -> str | None:
        """End the training of ``run`` on the machine, and fetch finished files.

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

    Any other name is that of a provider, whose machines are rented.
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
