"""LambdaCloud: rent machines with Lambda's API v1, https://docs.lambda.ai/api/cloud."""

import re
from typing import Any, ClassVar

from agentgym.errors import (
    ComputeError,
    ComputeRefusedError,
    NoCapacityError,
    UnclearLaunchError,
    UnreachableError,
)
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

_LAUNCH = "/instance-operations/launch"
_TERMINATE = "/instance-operations/terminate"
_USER = "ubuntu"
_MEMORY = re.compile(r"\((\d+(?:\.\d+)?) ?GB")
_STATES = {
    "booting": MachineState.STARTING,
    "active": MachineState.RUNNING,
    "terminating": MachineState.GONE,
    "terminated": MachineState.GONE,
}


class LambdaCloud(ApiProvider):
    """Rents Lambda's on-demand instances that have one GPU.

    Before a launch, an SSH key with the instance's name is registered at Lambda. It is
    removed after the instance has ended.
    """

    name = "lambda"
    key = "LAMBDA_API_KEY"
    url: ClassVar[str] = "https://cloud.lambda.ai/api/v1"
    url_variable: ClassVar[str] = "LAMBDA_API_URL"
    keys_at = "https://cloud.lambda.ai/api-keys"
    interval_s: ClassVar[float] = 1.0
    backoff_s = 2.0  # it takes a launch every 12 seconds, and a request every second
    ssh_port: ClassVar[int] = 22

    def offers(self) -> list[Offer]:
        """Return an offer for each region with free instances of one GPU."""
        types = _data(self.ask("GET", "/instance-types"), dict)
        with understood(self.name):
            return [
                offer
                for each in types.values()
                if each["instance_type"]["specs"]["gpus"] == 1
                for offer in self._offers(each)
            ]

    def _offers(self, each: dict[str, Any]) -> list[Offer]:
        kind = each["instance_type"]
        regions = [r["name"] for r in each["regions_with_capacity_available"]]
        gpu = str(kind.get("gpu_description") or kind["description"])
        memory = _MEMORY.search(gpu)
        return [
            Offer(
                provider=self.name,
                kind=str(kind["name"]),
                gpu=gpu.partition(" (")[0],
                gpus=1,
                gpu_memory_gb=float(memory[1]) if memory else 0.0,
                memory_gb=float(kind["specs"]["memory_gib"]),
                hourly=kind["price_cents_per_hour"] / 100,
                region=region,
                is_available=bool(region),
            )
            for region in regions or [""]
        ]

    def launch(self, offer: Offer, name: str, public_key: str) -> Machine:
        """Register the SSH key, and launch an instance; see :meth:`Provider.launch`."""
        self._register(name, public_key)
        body = {
            "region_name": offer.region,
            "instance_type_name": offer.kind,
            "ssh_key_names": [name],
            "name": name,
        }

        def launched(found: dict[str, Any]) -> Machine:
            first = _data(found, dict)["instance_ids"][0]
            return Machine(self.name, str(first), name, MachineState.STARTING)

        try:
            return self.ask_once(_LAUNCH, body, launched)
        except ComputeRefusedError as error:
            self.forget(name)
            if error.code.endswith("insufficient-capacity"):
                raise NoCapacityError(str(error)) from None
            raise

    def describe(self, machine: Machine) -> Machine:
        """Return an instance with its current state."""
        with if_it_exists():
            found = self.ask("GET", f"/instances/{id_of(machine)}")
            return self._machine(_data(found, dict))
        return Machine(self.name, machine.id, machine.name, MachineState.GONE)

    def terminate(self, machine: Machine) -> None:
        """Terminate an instance; Lambda may refuse while the instance boots."""
        with if_it_exists():
            self.ask("POST", _TERMINATE, {"instance_ids": [id_of(machine)]})

    def machines(self) -> list[Machine]:
        """Return the existing instances whose name starts with AgentGym's prefix."""
        found = map(self._machine, _data(self.ask("GET", "/instances"), list))
        return [
            machine
            for machine in found
            if machine.name.startswith(NAME_PREFIX)
            and machine.state is not MachineState.GONE
        ]

    def ending(self, machine: Machine) -> EndRequest:
        """Return the HTTP request with which an instance can terminate itself."""
        body = f'{{"instance_ids": ["{id_of(machine)}"]}}'
        url = self._address() + _TERMINATE
        return EndRequest("POST", url, self._secret(), body)

    def _register(self, name: str, public_key: str) -> None:
        """Register an SSH key at Lambda, unless a key of this name exists."""
        if any(key["name"] == name for key in self._keys()):
            return
        body = {"name": name, "public_key": public_key}
        try:
            self.ask_once("/ssh-keys", body, lambda found: _data(found, dict))
        except UnclearLaunchError as error:
            if not any(key["name"] == name for key in self._keys()):
                raise UnreachableError(
                    f"lambda did not take an SSH key, so nothing was launched: {error}"
                ) from None

    def _keys(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = _data(self.ask("GET", "/ssh-keys"), list)
        return found

    def forget(self, name: str) -> None:
        """Remove the SSH key of the terminated instance ``name``; ignore errors."""
        try:
            for key in self._keys():
                if key["name"] == name and name.startswith(NAME_PREFIX):
                    self.ask("DELETE", f"/ssh-keys/{key['id']}")
        except ComputeError:
            return

    def _machine(self, found: dict[str, Any]) -> Machine:
        """Convert Lambda's description of an instance to a Machine."""
        with understood(self.name):
            host = found.get("ip")
            return Machine(
                provider=self.name,
                id=str(found["id"]),
                name=str(found.get("name") or ""),
                state=_STATES.get(str(found["status"]), MachineState.STOPPED),
                address=Address(str(host), self.ssh_port, _USER) if host else None,
                hourly=found["instance_type"]["price_cents_per_hour"] / 100,
            )


def _data(found: dict[str, Any], kind: type) -> Any:
    """Return the field ``data`` of Lambda's answer."""
    data = found.get("data")
    if not isinstance(data, kind):
        raise ComputeRefusedError(
            f"lambda's answer holds no {'list' if kind is list else 'object'}.", 200
        )
    return data
