"""RunPod's REST API v2, as its OpenAPI description and examples have it."""

import itertools
from pathlib import Path
from typing import Any, Literal

from aiohttp import web

from tests.plugins.cloud.fakes.contract import Contract
from tests.plugins.cloud.fakes.server import PAGE, Fake, lost


def gpu(name: str, memory: int, price: float, stock: str = "HIGH") -> dict[str, Any]:
    """Return a type of GPU of the catalogue."""
    return {
        "id": f"NVIDIA {name}",
        "name": name,
        "pool": None,
        "manufacturer": "NVIDIA",
        "memory": memory,
        "secure": True,
        "community": True,
        "price": {"secure": price, "community": round(price * 0.7, 2)},
        "maxCount": {"secure": 8, "community": 4},
        "availability": stock,
    }


DISK_HOURLY = 100 * 0.10 * 12 / 8760
"""Of 100 GB of container disk, at its documented $0.10 per GB and month."""
GPUS = [
    gpu("RTX A4000", 16, 0.25),
    gpu("L4", 24, 0.43),
    gpu("RTX 4090", 24, 0.69),
    gpu("A100 PCIe", 80, 1.64),
    gpu("H100 SXM", 80, 2.99, "NONE"),
    {**gpu("MI300X", 192, 2.49), "manufacturer": "AMD"},
    {**gpu("RTX 3090", 24, 0.46), "secure": False},
]


class FakeRunPod(Fake):
    """Pods in memory.

    Attributes:
        pods: By id; those of other users' making may be put there.
        on_create: What becomes of the next creation: ``lost`` makes the pod and breaks
            the connection, ``page`` makes it and answers with a proxy's page, ``none``
            answers with that page and makes nothing.
        no_capacity: Ids of GPUs that cannot be placed.
        real_price: What a pod costs in the place of the price in the catalogue.
        has_address: Whether pods get one.
        steps: Looks at a pod until it runs.
        lag: Looks at the list until it shows what was made, or no more what is gone.
        undying: So many requests to end a pod are answered, and nothing is done.
        status: Of every pod, if it is none of the usual.
        may_create: Whether the key has the right to; else it may only read.
        with_disk: Whether the price of a pod includes its disk; that is not documented.
        no_money: Whether creations are refused for want of credit.
        authorized: A file that says whom the machines let in, if they let in anybody.
    """

    prefix = "/v2"
    contract = Contract("runpod")

    def __init__(self) -> None:
        super().__init__()
        self.may_create = True
        self.with_disk = False
        self.pods: dict[str, dict[str, Any]] = {}
        self.gone: dict[str, dict[str, Any]] = {}
        self.gpus = GPUS
        self.on_create: Literal["", "lost", "page", "none"] = ""
        self.no_capacity: set[str] = set()
        self.real_price: float | None = None
        self.has_address = True
        self.steps = 2
        self.lag = 0
        self.undying = 0
        self.status = ""
        self.no_money = False
        self.authorized: Path | None = None
        self._numbers = itertools.count(1)
        self._seen: dict[str, int] = {}
        self._listed: dict[tuple[str, bool], int] = {}

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/catalog/gpus", self._catalog),
            web.post("/pods", self._create),
            web.get("/pods", self._list),
            web.get("/pods/{id}", self._get),
            web.delete("/pods/{id}", self._delete),
        ]

    def unauthorized(self) -> web.Response:
        return problem(401, "Unauthorized", f"no such API key: {self._given()}")

    def invalid(self, problems: list[str]) -> web.Response:
        return problem(
            422, "Unprocessable Entity", "Request validation failed.", problems
        )

    def limited(self) -> web.Response:
        return problem(
            429, "Too Many Requests", "rate limit exceeded for the minute window"
        )

    def _given(self) -> str:
        return self.asked[-1].headers.get("Authorization", "").removeprefix("Bearer ")

    def make(self, name: str, gpu_id: str = "NVIDIA L4", **more: Any) -> dict[str, Any]:
        """Make a pod."""
        number = next(self._numbers)
        found = next((g for g in self.gpus if g["id"] == gpu_id), None)
        price = self.real_price or (found["price"]["secure"] if found else 0.5)
        price += DISK_HOURLY * self.with_disk
        pod = {
            "id": f"pod{number}",
            "name": name,
            "image": "runpod/pytorch",
            "args": "",
            "disk": 100,
            "ports": ["22/tcp"],
            "env": {},
            "registry": None,
            "status": "PROVISIONING",
            "actions": ["terminate"],
            "mounts": {},
            "gpu": {"id": gpu_id, "count": 1},
            "cloud": "SECURE",
            "dataCenterId": "US-KS-2",
            "cudaVersion": "12.8",
            "ssh": {"proxy": None, "direct": None},
            "template": None,
            "cost": price,
            "locked": False,
            "globalNetworking": {"enabled": False},
            "runtime": None,
            "createdAt": "2026-06-01T12:00:00Z",
            "startedAt": None,
            **more,
        }
        self.pods[pod["id"]] = pod
        return pod

    async def _catalog(self, request: web.Request) -> web.Response:
        return web.json_response({"gpus": self.gpus})

    async def _create(self, request: web.Request) -> web.Response:
        body = await request.json()
        if not self.may_create:
            return problem(403, "Forbidden", "access denied")
        if self.no_money:
            return problem(402, "Payment Required", "insufficient balance")
        if body["gpu"]["id"] in self.no_capacity:
            return problem(400, "Bad Request", "There are no instances available")
        if self.on_create == "none":
            self.on_create = ""
            return web.Response(status=502, text=PAGE, content_type="text/html")
        pod = self.make(body["name"], body["gpu"]["id"], env=body["env"])
        if self.authorized is not None:
            self.authorized.write_text(body["env"]["PUBLIC_KEY"] + "\n")
        if self.on_create:
            how, self.on_create = self.on_create, ""
            if how == "lost":
                return lost(request)
            return web.Response(status=502, text=PAGE, content_type="text/html")
        if self.odd is not None:
            return web.Response(status=self.odd[0], text=self.odd[1])
        return web.json_response(pod, status=201)

    async def _list(self, request: web.Request) -> web.Response:
        made = [p for p in self.pods.values() if self._shows(p, True)]
        gone = [p for p in self.gone.values() if not self._shows(p, False)]
        return web.json_response({"pods": [*made, *gone]})

    def _shows(self, pod: dict[str, Any], is_there: bool) -> bool:
        """Say whether the list shows what is so by now."""
        looks = self._listed.get((pod["id"], is_there), 0)
        self._listed[pod["id"], is_there] = looks + 1
        return looks >= self.lag

    async def _get(self, request: web.Request) -> web.Response:
        pod = self.pods.get(request.match_info["id"])
        if pod is None:
            return problem(404, "Not Found", "pod not found")
        seen = self._seen[pod["id"]] = self._seen.get(pod["id"], 0) + 1
        if seen >= self.steps:
            pod["status"] = self.status or "RUNNING"
            if self.has_address and not self.status:
                direct = {"host": "127.0.0.1", "port": self.ssh, "username": "root"}
                direct["command"] = f"ssh root@127.0.0.1 -p {self.ssh}"
                pod["ssh"] = {"proxy": None, "direct": direct}
        return web.json_response(pod)

    async def _delete(self, request: web.Request) -> web.Response:
        if request.match_info["id"] not in self.pods:
            return problem(404, "Not Found", "pod not found")
        if self.undying:
            self.undying -= 1
        else:
            pod = self.pods.pop(request.match_info["id"])
            self.gone[pod["id"]] = pod
        return web.Response(status=204)


def problem(
    status: int, title: str, detail: str, errors: list[str] | None = None
) -> web.Response:
    """Return an error as RFC 9457 has it."""
    body: dict[str, Any] = {"title": title, "status": status, "detail": detail}
    if errors is not None:
        body["errors"] = errors
    return web.json_response(
        body, status=status, content_type="application/problem+json"
    )
