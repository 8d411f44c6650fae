"""Lambda's API v1, as its documentation and clients have it."""

import itertools
from typing import Any, Literal

from aiohttp import web

from tests.compute.fakes.server import PAGE, Fake, lost

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
        on_launch: As of RunPod's fake, ``lost``, ``page`` or ``none``.
        no_capacity: Regions that have none.
        quota: Whether launches are refused because the account may have no more.
        lose_key: Whether the connection breaks in the place of saying that a key is
            known by now.
    """

    def __init__(self) -> None:
        super().__init__()
        self.instances: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, dict[str, str]] = {}
        self.on_launch: Literal["", "lost", "page", "none"] = ""
        self.no_capacity: set[str] = set()
        self.quota = False
        self.lose_key = False
        self._numbers = itertools.count(1)

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

    def limited(self) -> web.Response:
        return error(429, "global/rate-limited", "Too many requests")

    def make(self, name: str, kind: str = "gpu_1x_a10") -> dict[str, Any]:
        """Make an instance."""
        instance = {
            "id": f"{next(self._numbers):032x}",
            "name": name,
            "status": "booting",
            "ip": None,
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
            return error(
                400,
                "instance-operations/launch/insufficient-capacity",
                "Not enough capacity to fulfill launch request.",
            )
        how, self.on_launch = self.on_launch, ""
        if how == "none":
            return web.Response(status=502, text=PAGE, content_type="text/html")
        made = self.make(body["name"], body["instance_type_name"])
        if self.odd is not None:
            return web.Response(status=self.odd[0], text=self.odd[1])
        if how == "lost":
            return lost(request)
        if how == "page":
            return web.Response(status=502, text=PAGE, content_type="text/html")
        return web.json_response({"data": {"instance_ids": [made["id"]]}})

    async def _terminate(self, request: web.Request) -> web.Response:
        ids = (await request.json())["instance_ids"]
        if not all(each in self.instances for each in ids):
            return error(404, "global/object-does-not-exist", "Instance was not found")
        ended = [self.instances.pop(each) for each in ids]
        return web.json_response({"data": {"terminated_instances": ended}})

    async def _list(self, request: web.Request) -> web.Response:
        return web.json_response({"data": list(self.instances.values())})

    async def _get(self, request: web.Request) -> web.Response:
        found = self.instances.get(request.match_info["id"])
        if found is None:
            return error(404, "global/object-does-not-exist", "Instance was not found")
        found |= {"status": "active", "ip": "127.0.0.1"}
        return web.json_response({"data": found})

    async def _list_keys(self, request: web.Request) -> web.Response:
        return web.json_response({"data": list(self.keys.values())})

    async def _add_key(self, request: web.Request) -> web.Response:
        body = await request.json()
        number = f"key{next(self._numbers)}"
        self.keys[number] = {"id": number, **body}
        if self.lose_key:
            return lost(request)
        return web.json_response({"data": self.keys[number]})

    async def _delete_key(self, request: web.Request) -> web.Response:
        self.keys.pop(request.match_info["id"], None)
        return web.json_response({"data": {}})


def error(status: int, code: str, message: str) -> web.Response:
    """Return an error as Lambda does."""
    body = {"error": {"code": code, "message": message, "suggestion": None}}
    return web.json_response(body, status=status)
