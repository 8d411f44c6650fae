"""``--gpu ssh:user@host``: training on a machine that the user can log in to."""

from agentgym.compute.base import Address
from agentgym.compute.elsewhere.package import WHEEL_NAME
from agentgym.compute.elsewhere.parcel import make_parcel
from agentgym.compute.elsewhere.prepare import FOLDER
from agentgym.compute.remote import bring_home, train_elsewhere
from agentgym.core.config import TrainingConfig
from agentgym.errors import ComputeError
from agentgym.evaluate.progress import Progress
from agentgym.train.places import Elsewhere, Place
from agentgym.train.result import TrainingResult
from agentgym.train.run_folder import RunFolder


class OverSSH(Place):
    """A machine of one's own; training ends only when it is done or is told to."""

    def plan(self, config: TrainingConfig) -> Elsewhere:
        """Say what would be sent and installed; the machine is not asked."""
        return plan_elsewhere(config, f"{_address(config)}, over SSH")

    def train(
        self, config: TrainingConfig, run: RunFolder, progress: Progress
    ) -> TrainingResult:
        """Train there; see :func:`~agentgym.compute.remote.train_elsewhere`."""
        return train_elsewhere(config, _address(config), None, run, progress)

    def bring_home(self, config: TrainingConfig, run: RunFolder) -> str | None:
        """Fetch what the machine has, unless it cannot be reached."""
        try:
            bring_home(_address(config), None, run, Progress())
        except ComputeError as error:
            return str(error)
        return None


def plan_elsewhere(config: TrainingConfig, machine: str) -> Elsewhere:
    """Say what a run sends to a machine, and what is installed there.

    Args:
        config: Of the run.
        machine: Which, in words.
    """
    parcel = make_parcel(config)
    own = f"{WHEEL_NAME.partition('-py3')[0]} [{', '.join(parcel.extras)}]"
    return Elsewhere(
        config=config,
        machine=machine,
        uploads={name: path.stat().st_size for name, path in parcel.files.items()},
        installs=[own, *parcel.packages],
        variables=list(parcel.variables),
        folder=f"~/{FOLDER}",
    )


def _address(config: TrainingConfig) -> Address:
    return Address.parse(config.gpu.partition(":")[2])
