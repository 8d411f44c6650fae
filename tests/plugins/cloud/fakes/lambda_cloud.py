"""Lambda's API v1, as its documentation and clients have it."""

import itertools
from typing import Any

from aiohttp import web

from tests.plugins.cloud.fakes.contract import Contract
from tests.plugins.cloud.fakes.server import Fake, lost

_TYPES = {
    "gpu_1x_a10": ("A10 (24 GB PCIe)", 1, 129, ["us-west-1", "us-east-1"]),
    "gpu_1x_a100_sxm4": ("A100 (40 GB SXM4)", 1, 199, []),
    "gpu_1x_gh200": ("GH200 (96 GB)", 1, 229, ["us-east-3"]),
    "gpu_8x_h100_sxm5": ("H100 (80 GB SXM5)", 8, 3192, ["us-west-1"]),
}


def instance_type(name: str) -> dict[str, Any]:
    """Return what is told of a type of instance."""
    gpu, count, cents, _ = _TYPES[name]
    return {
        "name": name,
        "description": f"{count}x {gpu}",
        "gpu_description": gpu,
        "price_cents_per_hour": cents,
        "specs": {"vcpus": 30, "memory_gib": 200, "storage_gib": 1400, "gpus": count},
    }


class FakeLambda(Fake):
    """Instances in memory.

    Attributes:
        instances: By id.
        keys: SSH keys, by id.
        boot_looks: Looks at an instance by its id until it has booted.
        is_locked_while_booting: Whether one that boots cannot be terminated.
        no_capacity: Regions that have none.
        quota: Whether launches are refused because the account may have no more.
        lose_key: Whether the connection breaks in the place of saying that a key is
            known by now.
    """

    prefix = "/api/v1"
    contract = Contract("lambda_cloud")

    def __init__(self) -> None:
        super().__init__()
        self.boot_looks = 0
        self.is_locked_while_booting = False
        self.instances: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, dict[str, str]] = {}
        self.no_capacity: set[str] = set()
        self.quota = False
        self.lose_key = False
        self._numbers = itertools.count(1)
        self._looks: dict[str, int] = {}

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/instance-types", self._types),
            web.post("/instance-operations/launch", self._launch),
            web.post("/instance-operations/terminate", self._terminate),
            web.get("/instances", self._list),
            web.get("/instances/{id}", self._get),
            web.get("/ssh-keys", self._list_keys),
            web.post("/ssh-keys", self._add_key),
            web.delete("/ssh-keys/{id}", self._delete_key),
        ]

    def unauthorized(self) -> web.Response:
        return error(401, "global/invalid-api-key", "API key was invalid, expired")

    def invalid(self, problems: list[str]) -> web.Response:
        return error(400, "global/invalid-parameters", "; ".join(problems))

    def limited(self) -> web.Response:
        return error(429, "global/rate-limited", "Too many requests")

    def make(self, name: str, kind: str = "gpu_1x_a10") -> dict[str, Any]:
        """Make an instance."""
        instance = {
            "id": f"{next(self._numbers):032x}",
            "name": name,
            "status": "booting",
            "actions": {
                name: {"available": True}
                for name in (
                    "migrate",
                    "rebuild",
                    "restart",
                    "cold_reboot",
                    "terminate",
                )
            },
            "ssh_key_names": [name],
            "file_system_names": [],
            "region": {"name": "us-west-1", "description": "California, USA"},
            "instance_type": instance_type(kind),
            "hostname": "127-0-0-1.cloud.lambda.ai",
            "jupyter_token": "53968f128c4a4489b688c2c0a181d083",
        }
        self.instances[instance["id"]] = instance
        return instance

    async def _types(self, request: web.Request) -> web.Response:
        data = {
            name: {
                "instance_type": instance_type(name),
                "regions_with_capacity_available": [
                    {"name": region, "description": region} for region in regions
                ],
            }
            for name, (_, _, _, regions) in _TYPES.items()
        }
        return web.json_response({"data": data})

    async def _launch(self, request: web.Request) -> web.Response:
        body = await request.json()
        named = {key["name"] for key in self.keys.values()}
        if len(body["ssh_key_names"]) != 1 or body["ssh_key_names"][0] not in named:
            return error(400, "global/object-does-not-exist", "SSH key was not found")
        if self.quota:
            return error(403, "global/quota-exceeded", "Quota exceeded")
        if body["region_name"] in self.no_capacity:
            code = "instance-operations/launch/insufficient-capacity"
            return error(400, code, "Not enough capacity to fulfill launch request.")
        made = self.make(body["name"], body["instance_type_name"])
        if self.odd is not None:
            return web.Response(status=self.odd[0], text=self.odd[1])
        return web.json_response({"data": {"instance_ids": [made["id"]]}})

    async def _terminate(self, request: web.Request) -> web.Response:
        ids = (await request.json())["instance_ids"]
        if not all(each in self.instances for each in ids):
            return error(404, "global/object-does-not-exist", "Instance was not found")
        for each in ids:
            self._look(self.instances[each])
        if any(self._is_locked(self.instances[each]) for each in ids):
            return error(400, "global/invalid-parameters", "vm-has-not-launched")
        ended = [{**self.instances.pop(each), "status": "terminating"} for each in ids]
        return web.json_response({"data": {"terminated_instances": ended}})

    def _is_locked(self, instance: dict[str, Any]) -> bool:
        return self.is_locked_while_booting and instance["status"] == "booting"

    async def _list(self, request: web.Request) -> web.Response:
        return web.json_response({"data": list(self.instances.values())})

    async def _get(self, request: web.Request) -> web.Response:
        found = self.instances.get(request.match_info["id"])
        if found is None:
            return error(404, "global/object-does-not-exist", "Instance was not found")
        self._look(found)
        if self.is_locked_while_booting:
            blocked = {"available": False, "reason_code": "vm-has-not-launched"}
            is_blocked = self._is_locked(found)
            free = {"available": True}
            found["actions"]["terminate"] = blocked if is_blocked else free
        return web.json_response({"data": found})

    def _look(self, instance: dict[str, Any]) -> None:
        """Let an instance boot after so many looks at it."""
        looks = self._looks[instance["id"]] = self._looks.get(instance["id"], 0) + 1
        if looks > self.boot_looks:
            instance |= {"status": "active", "ip": "127.0.0.1"}

    async def _list_keys(self, request: web.Request) -> web.Response:
        return web.json_response({"data": list(self.keys.values())})

    async def _add_key(self, request: web.Request) -> web.Response:
        body = await request.json()
        number = f"key{next(self._numbers)}"
        self.keys[number] = {"id": number, "public_key": "", **body}
        if self.lose_key:
            return lost(request)
        return web.json_response({"data": self.keys[number]})

    async def _delete_key(self, request: web.Request) -> web.Response:
        self.keys.pop(request.match_info["id"], None)
        return web.json_response({"data": {}})


def error(status: int, code: str, message: str) -> web.Response:
    """Return an error as Lambda does."""
    body = {"error": {"code": code, "message": message}}
    return web.json_response(body, status=status)
