"""Where a model runs is told without torch."""

from pathlib import Path

import pytest

from agentgym.engines import device
from agentgym.engines.device import check_device
from agentgym.errors import GPUNotAvailableError

NO_GPU = not any(Path("/dev").glob("nvidia[0-9]*"))


@pytest.mark.skipif(not NO_GPU, reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused_and_auto_takes_the_cpu() -> None:
    with pytest.raises(GPUNotAvailableError, match="--gpu none"):
        check_device("local")
    assert check_device("auto") == "cpu"


@pytest.mark.parametrize(
    ("flags", "has_half"),
    [
        ("flags : fpu avx512f amx_bf16 amx_tile", True),
        ("flags : fpu avx512f avx512_bf16", True),
        ("Features : fp asimd bf16 i8mm", True),
        ("flags : fpu avx2 avx512f", False),
    ],
)
def test_a_processor_that_computes_in_bfloat16_is_known_by_its_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str, has_half: bool
) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor : 0\n{flags}\n")
    monkeypatch.setattr(device, "_PROCESSOR", tmp_path / "cpuinfo")
    device.cpu_has_half.cache_clear()
    assert device.cpu_has_half() is has_half
    device.cpu_has_half.cache_clear()
