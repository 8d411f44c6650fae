"""Where a model runs is told without torch."""

from pathlib import Path

import pytest

from agentgym.engines.device import check_device
from agentgym.errors import GPUNotAvailableError

NO_GPU = not any(Path("/dev").glob("nvidia[0-9]*"))


@pytest.mark.skipif(not NO_GPU, reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused_and_auto_takes_the_cpu() -> None:
    with pytest.raises(GPUNotAvailableError, match="--gpu none"):
        check_device("local")
    assert check_device("auto") == "cpu"
