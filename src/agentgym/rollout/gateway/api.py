"""Api: Agent Lightning's rollouts, events and models over HTTP, plus what we add."""

import asyncio
from collections.abc import Sequence
from typing import Any

import orjson
from agentlightning.schemas import (
    TERMINAL_STATES,
    EventCreate,
    Model,
    Rollout,
    RolloutCreate,
    RolloutPatch,
    RolloutState,
)
from aiohttp import web
from pydantic import BaseModel, Field, TypeAdapter

from agentgym.core.openai import ApiError
from agentgym.core.trajectory import Reason
from agentgym.rollout.store import signals
from agentgym.rollout.store.events import answered_calls, triplets
from agentgym.rollout.store.store import Store

_MAX_WAIT_S = 60.0
_ROLLOUTS = TypeAdapter(list[RolloutCreate])
_MODELS = TypeAdapter(list[Model])
_STATES = TypeAdapter(list[RolloutState])
_FALSE = ("0", "false", "no", "off")


class ClaimRequest(BaseModel):
    """Body of ``POST /api/rollouts/claim``.

    Attributes:
        n: Most rollouts to hand out.
        worker: Who asks.
        wait_s: Wait this long until there is one.
    """

    n: int = Field(default=1, ge=1)
    worker: str = ""
    wait_s: float = Field(default=0.0, ge=0)


class FinishRequest(BaseModel):
    """Body of ``POST /api/rollouts/{id}/attempt/{a}/finish``.

    Attributes:
        state: ``succeeded`` or ``failed``.
        events: Recorded together with the end.
        reason: Why it failed.
        retry: Whether a failed attempt is tried again while tries are left.
    """

    state: RolloutState
    events: list[EventCreate] = Field(default_factory=list)
    reason: Reason | None = None
    retry: bool = True


class Api:
    """The handlers below ``/api``.

    Args:
        store: What they read and change.
        takes_models: Whether model servers may be registered.
    """

    def __init__(self, store: Store, *, takes_models: bool) -> None:
        self._store = store
        self._takes_models = takes_models

    def routes(self) -> list[web.RouteDef]:
        """Return the routes below ``/api``."""
        one = "/api/rollouts/{rollout_id}"
        attempt = one + "/attempt/{attempt_id}"
        return [
            web.post("/api/rollouts", self.create_rollouts),
            web.get("/api/rollouts", self.list_rollouts),
            web.post("/api/rollouts/claim", self.claim),
            web.get("/api/rollouts/terminal", self.list_terminal),
            web.get(one, self.get_rollout),
            web.patch(one, self.patch_rollout),
            web.delete(one, self.delete_rollout),
            web.get(one + "/events", self.list_events),
            web.post(attempt + "/events", self.add_event),
            web.get(attempt + "/calls", self.list_calls),
            web.post(attempt + "/finish", self.finish),
            web.post("/api/models", self.register_models),
            web.delete("/api/models", self.delete_models),
        ]

    async def create_rollouts(self, request: web.Request) -> web.Response:
        """Queue rollouts; a known id returns the rollout as it is."""
        items = _ROLLOUTS.validate_json(await request.read())
        return _rollouts(self._store.create_rollouts(items), status=201)

    async def list_rollouts(self, request: web.Request) -> web.Response:
        """List rollouts by state; with ``wait_s``, once there is one."""
        states = set(_STATES.validate_python(request.query.getall("state_in", [])))
        if not states:
            raise ApiError(422, "Query parameter state_in is missing.", "invalid_value")
        limit = _number(request, "limit", 500)
        if wait_s := _wait_s(request):
            await self._store.signals.wait_async(
                signals.ANY, lambda: self._store.has_any(states), wait_s
            )
        if states & TERMINAL_STATES:
            return _rollouts(
                await asyncio.to_thread(self._store.list_rollouts, states, limit)
            )
        return _rollouts(self._store.list_rollouts(states, limit))

    async def claim(self, request: web.Request) -> web.Response:
        """Hand queued rollouts to a worker, marked running."""
        body = ClaimRequest.model_validate_json(await request.read())
        wait_s = min(body.wait_s, _MAX_WAIT_S)
        return _rollouts(
            await self._store.claim_async(body.worker, body.n, wait_s=wait_s)
        )

    async def list_terminal(self, request: web.Request) -> web.Response:
        """Page through rollouts in the order they ended."""
        found, after, total = await asyncio.to_thread(
            self._store.list_terminal,
            max(_number(request, "after", 0), 0),
            max(_number(request, "limit", 1000), 1),
        )
        items = [
            {
                "rollout_id": rollout.rollout_id,
                "state": rollout.status.state,
                "data_id": _data_id(rollout.input),
                "is_train": rollout.is_train,
            }
            for rollout in found
        ]
        return _json({"items": items, "next_after": after, "total_terminal": total})

    async def get_rollout(self, request: web.Request) -> web.Response:
        """Return a rollout; with ``wait_s``, once it has ended."""
        rollout_id = request.match_info["rollout_id"]
        rollout = self._store.get(rollout_id)
        if wait_s := _wait_s(request):
            await self._store.signals.wait_async(
                signals.terminal(rollout_id),
                lambda: self._store.has_ended(rollout_id),
                wait_s,
            )
            rollout = self._store.get(rollout_id)
        attempts = orjson.dumps(self._store.attempts(rollout_id))
        body = b'{"rollout":%b,"attempts":%b}' % (_dump(rollout), attempts)
        return web.Response(body=body, content_type="application/json")

    async def patch_rollout(self, request: web.Request) -> web.Response:
        """Change a rollout's status."""
        rollout_id = request.match_info["rollout_id"]
        body = RolloutPatch.model_validate_json(await request.read())
        if body.status is None:
            return _rollout(self._store.get(rollout_id))
        return _rollout(self._store.patch(rollout_id, body.status))

    async def delete_rollout(self, request: web.Request) -> web.Response:
        """Remove a rollout and its events."""
        self._store.delete(request.match_info["rollout_id"])
        return web.Response(status=204)

    async def list_events(self, request: web.Request) -> web.Response:
        """Return the events of the last attempt, or of ``attempt_id``."""
        query = request.query
        events = self._store.events(
            request.match_info["rollout_id"], query.get("attempt_id")
        )
        if "event_type" in query:
            events = [e for e in events if e.event_type == query["event_type"]]
        if query.get("include_routed_experts", "true").lower() in _FALSE:
            events = [event.without_routes() for event in events]
        if query.get("format") == "triplet":
            return _json(triplets(events))
        return _json([event.to_dict() for event in events])

    async def add_event(self, request: web.Request) -> web.Response:
        """Record an event of an attempt."""
        where = request.match_info
        body = EventCreate.model_validate_json(await request.read())
        event = self._store.add_event(
            where["rollout_id"], where["attempt_id"], body.event_type, body.data
        )
        return _json(event.to_dict())

    async def list_calls(self, request: web.Request) -> web.Response:
        """Return the model calls that were answered, as steps of a trajectory."""
        where = request.match_info
        events = self._store.events(where["rollout_id"], where["attempt_id"])
        return _json([call.to_step() for call in answered_calls(events)])

    async def finish(self, request: web.Request) -> web.Response:
        """Record an attempt's last events and its end, all or nothing."""
        where = request.match_info
        body = FinishRequest.model_validate_json(await request.read())
        rollout = self._store.finish(
            where["rollout_id"],
            where["attempt_id"],
            state=body.state,
            events=body.events,
            reason=body.reason,
            retry=body.retry,
        )
        return _rollout(rollout)

    async def register_models(self, request: web.Request) -> web.Response:
        """Register model servers; the same model and endpoint is replaced."""
        models = _MODELS.validate_json(await request.read())
        if not self._takes_models:
            raise ApiError(
                409,
                "This gateway answers from a policy in its own process; it forwards "
                "to no model server.",
                "in_process_policy",
            )
        found = self._store.models.upsert(models)
        return _json([model.model_dump(mode="json") for model in found], status=201)

    async def delete_models(self, request: web.Request) -> web.Response:
        """Remove all model servers."""
        self._store.models.clear()
        return _json({"status": "ok"})


def _json(value: Any, status: int = 200) -> web.Response:
    body = orjson.dumps(value)
    return web.Response(body=body, status=status, content_type="application/json")


def _rollout(rollout: Rollout) -> web.Response:
    return web.Response(body=_dump(rollout), content_type="application/json")


def _rollouts(rollouts: Sequence[Rollout], status: int = 200) -> web.Response:
    body = b"[%b]" % b",".join(map(_dump, rollouts))
    return web.Response(body=body, status=status, content_type="application/json")


def _dump(rollout: Rollout) -> bytes:
    return rollout.model_dump_json().encode()


def _data_id(task: Any) -> str:
    """Return what names a rollout's task in Agent Lightning's data sets."""
    if not isinstance(task, dict):
        return ""
    return str(task.get("data_id") or task.get("instance_id") or "")


def _number(request: web.Request, name: str, default: int) -> int:
    value = request.query.get(name)
    if value is None:
        return default
    try:
        return int(value)
    except ValueError:
        raise ApiError(
            422, f"{name} = {value!r} is no whole number.", "invalid_value"
        ) from None


def _wait_s(request: web.Request) -> float:
    value = request.query.get("wait_s", "0")
    try:
        return min(max(float(value), 0.0), _MAX_WAIT_S)
    except ValueError:
        raise ApiError(
            422, f"wait_s = {value!r} is no number.", "invalid_value"
        ) from None
