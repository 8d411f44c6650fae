"""``--gpu ssh:user@host``: train on a machine that the user can log in to."""

from agentgym.core.config import TrainingConfig
from agentgym.errors import ComputeError
from agentgym.evaluate.progress import Progress
from agentgym.plugins.cloud.base import Address
from agentgym.plugins.cloud.elsewhere.package import WHEEL_NAME
from agentgym.plugins.cloud.elsewhere.prepare import FOLDER
from agentgym.plugins.cloud.elsewhere.upload import make_upload
from agentgym.plugins.cloud.remote import fetch_results, train_elsewhere
from agentgym.train.places import Elsewhere, Place
from agentgym.train.result import TrainingResult
from agentgym.train.run_folder import RunFolder

_MAY_CHOOSE = (
    "vllm, which is made to sample on a GPU, if the machine has one with room for it "
    "and the learner; else local. --engine local leaves vLLM out (20 GB)"
)


class OverSSH(Place):
    """Trains on a machine that the user can log in to with SSH.

    Training continues if the client disconnects.
    """

    def plan(self, config: TrainingConfig) -> Elsewhere:
        """Return the plan of a run, without contacting the machine."""
        return plan_elsewhere(config, f"{_address(config)}, over SSH")

    def train(
        self, config: TrainingConfig, run: RunFolder, progress: Progress
    ) -> TrainingResult:
        """Train the run on the machine, and return its result."""
        return train_elsewhere(config, _address(config), None, run, progress)

    def fetch_results(self, config: TrainingConfig, run: RunFolder) -> str | None:
        """Stop the training and fetch its finished files."""
        try:
            fetch_results(_address(config), None, run, Progress())
        except ComputeError as error:
            return str(error)
        return None


def plan_elsewhere(config: TrainingConfig, machine: str) -> Elsewhere:
    """Return the plan of a run on another machine: uploads and installations."""
    upload = make_upload(config)
    own = f"{WHEEL_NAME.partition('-py3')[0]} [{', '.join(upload.extras)}]"
    installs = [own, *upload.packages]
    if upload.engine:
        where = ", if its GPU has room" * upload.may_choose
        installs.append(
            f"the environment of {upload.engine}{where}, unless it is installed"
        )
    return Elsewhere(
        config=config,
        machine=machine,
        uploads={name: path.stat().st_size for name, path in upload.files.items()},
        installs=installs,
        variables=list(upload.variables),
        folder=f"~/{FOLDER}",
        engine=_MAY_CHOOSE if upload.may_choose else "",
    )


def _address(config: TrainingConfig) -> Address:
    return Address.parse(config.gpu.partition(":")[2])
