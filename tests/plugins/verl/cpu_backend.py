"""verl 0.9 on a machine without a GPU, for tests.

Loaded by ``VERL_USE_EXTERNAL_MODULES``: a platform, in verl's own registry.
"""

import contextlib
import types
from typing import Any

import cpu_rollout
import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


def _device_module() -> types.ModuleType:
    """Return torch.cpu with the functions of memory that it lacks."""
    module = types.ModuleType("torch_cpu")
    for name in dir(torch.cpu):
        setattr(module, name, getattr(torch.cpu, name))
    for name in ("memory_allocated", "memory_reserved"):
        for prefix in ("", "max_"):
            setattr(module, prefix + name, lambda *_a, **_k: 0)
    for name in ("empty_cache", "reset_peak_memory_stats", "ipc_collect"):
        setattr(module, name, lambda *_a, **_k: None)
    module.get_rng_state = lambda *_a: torch.get_rng_state()
    module.set_rng_state = lambda state, *_a: torch.set_rng_state(state)
    module.mem_get_info = lambda *_a: (2**34, 2**34)
    module.get_device_name = lambda *_a: "cpu"
    return module


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _device_module()

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg: str) -> Any:
        yield

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "GPU"  # a logical one, which ray.init is told of

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None


cpu_rollout.install()
