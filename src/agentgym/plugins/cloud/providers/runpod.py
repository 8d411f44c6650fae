"""RunPod: rent machines, https://docs.runpod.io/api-reference-v2/overview (API v2)."""

from typing import Any, ClassVar

from agentgym.errors import ComputeError, ComputeRefusedError, NoCapacityError
from agentgym.plugins.cloud.base import (
    NAME_PREFIX,
    Address,
    EndRequest,
    Machine,
    MachineState,
    Offer,
)
from agentgym.plugins.cloud.providers.api import (
    ApiProvider,
    id_of,
    if_it_exists,
    understood,
)

IMAGE = "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404"
"""Image of each pod: Ubuntu 24.04 with Python 3.12, CUDA 12.8 and an SSH server."""
_CUDA = "12.8"
_DISK_GB = 100
_DISK_HOURLY = _DISK_GB * 0.10 * 12 / (365 * 24)
"""$ per hour, from $0.10 per GB and month: https://docs.runpod.io/pods/pricing
(2026-08)."""
_NO_CAPACITY = 400
"""HTTP status if all GPUs of a type are taken; RunPod has no error code for that."""
_FORBIDDEN = 403
_IN_STOCK = ("LOW", "MEDIUM", "HIGH")
_NO_MONEY = 402
_STATES = {
    "PROVISIONING": MachineState.STARTING,
    "STARTING": MachineState.STARTING,
    "RUNNING": MachineState.RUNNING,
    "TERMINATED": MachineState.GONE,
}


class RunPod(ApiProvider):
    """Rents pods with one GPU in RunPod's own data centres (its ``SECURE`` cloud)."""

    name = "runpod"
    key = "RUNPOD_API_KEY"
    url: ClassVar[str] = "https://api.runpod.io/v2"
    url_variable: ClassVar[str] = "RUNPOD_API_URL"
    keys_at = "https://console.runpod.io/user/settings"

    def offers(self) -> list[Offer]:
        """Return one offer for each type of NVIDIA GPU, even if it is out of stock."""
        query = {"include": "AVAILABILITY", "product": "POD", "cloud": "SECURE"}
        found = self.ask(
            "GET", "/catalog/gpus", count="1", minCudaVersion=_CUDA, **query
        )
        with understood(self.name):
            return [
                Offer(
                    provider=self.name,
                    kind=str(gpu["id"]),
                    gpu=str(gpu["name"]),
                    gpus=1,
                    gpu_memory_gb=float(gpu["memory"]),
                    hourly=float(gpu["price"]["secure"]) + _DISK_HOURLY,
                    disk_hourly=_DISK_HOURLY,
                    is_available=gpu.get("availability") in _IN_STOCK,
                )
                for gpu in _listed(found, "gpus")
                if gpu["manufacturer"] == "NVIDIA"
                and gpu["secure"]
                and gpu["price"]["secure"]
            ]

    def launch(self, offer: Offer, name: str, public_key: str) -> Machine:
        """Create a pod, RunPod's name for a machine; see :meth:`Provider.launch`."""
        body = {
            "name": name,
            "image": IMAGE,
            "cloud": "SECURE",
            "gpu": {"id": offer.kind, "count": 1, "minCudaVersion": _CUDA},
            "disk": _DISK_GB,
            "ports": ["22/tcp"],
            "env": {"PUBLIC_KEY": public_key},
            "startSsh": True,
        }
        try:
            return self.ask_once("/pods", body, self._machine)
        except ComputeRefusedError as error:
            if error.status == _NO_CAPACITY:
                raise NoCapacityError(str(error)) from None
            if error.status == _FORBIDDEN:
                raise ComputeRefusedError(
                    f"{error}. The key in {self.key} is valid and may not create pods, "
                    f"or the account may not use {offer.gpu}: give the key the right "
                    f"to read and write pods at {self.keys_at}, or name another GPU, "
                    "as in --gpu runpod:A100.",
                    error.status,
                ) from None
            if error.status == _NO_MONEY:
                raise ComputeError(
                    f"{error} Add credit at https://console.runpod.io/user/billing."
                ) from None
            raise

    def describe(self, machine: Machine) -> Machine:
        """Return a pod with its current state."""
        with if_it_exists():
            return self._machine(self.ask("GET", f"/pods/{id_of(machine)}"))
        return Machine(self.name, machine.id, machine.name, MachineState.GONE)

    def terminate(self, machine: Machine) -> None:
        """Delete a pod with its disk."""
        with if_it_exists():
            self.ask("DELETE", f"/pods/{id_of(machine)}")

    def machines(self) -> list[Machine]:
        """Return the existing pods whose name starts with AgentGym's prefix."""
        found = self.ask("GET", "/pods")
        pods = [
            self._machine(pod)
            for pod in _listed(found, "pods")
            if str(pod.get("name")).startswith(NAME_PREFIX)
        ]
        return [pod for pod in pods if pod.state is not MachineState.GONE]

    def ending(self, machine: Machine) -> EndRequest:
        """Return the HTTP request with which a pod can delete itself."""
        url = f"{self._address()}/pods/{id_of(machine)}"
        return EndRequest("DELETE", url, self._secret())

    def _machine(self, pod: dict[str, Any]) -> Machine:
        """Convert RunPod's description of a pod to a Machine."""
        with understood(self.name):
            direct = (pod.get("ssh") or {}).get("direct")
            address = None
            if direct:
                user = str(direct.get("username") or "root")
                address = Address(str(direct["host"]), int(direct["port"]), user)
            return Machine(
                provider=self.name,
                id=str(pod["id"]),
                name=str(pod["name"]),
                state=_STATES.get(str(pod["status"]), MachineState.STOPPED),
                address=address,
                hourly=float(pod.get("cost") or 0),
                disk_hourly=float(pod.get("disk") or 0) / _DISK_GB * _DISK_HOURLY,
            )


def _listed(found: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the objects in the list ``name`` of RunPod's answer."""
    items = found.get(name)
    if not isinstance(items, list):
        raise ComputeRefusedError(f"runpod's answer has no list of {name}.", 200)
    return [item for item in items if isinstance(item, dict)]
