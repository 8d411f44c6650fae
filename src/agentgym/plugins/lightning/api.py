"""LightningApi: HTTP handlers for Agent Lightning's rollouts, events and models."""

import asyncio
import re
from collections.abc import Sequence

from aiohttp import web

from agentgym.core.openai import ApiError
from agentgym.plugins.lightning import schemas
from agentgym.rollout.gateway.gateway import ATTEMPT, MAX_WAIT_S, ApiHandlers
from agentgym.rollout.gateway.http import MOST_NAME, Request, Route
from agentgym.rollout.gateway.protocol import invalid, read_json, reply
from agentgym.rollout.store.records import NewEvent, Rollout
from agentgym.security.redaction import quoted

_MOST = 2**63 - 1
_ADDRESS = re.compile(r"https?://[^/\s?#]+[^\s]*\Z")
_NOT_NAMES = (".", "..", "terminal", "claim")
_FALSE = ("0", "false", "no", "off")


class LightningApi(ApiHandlers):
    """Handles Agent Lightning's requests too: of trainers and of its controller."""

    def routes(self) -> list[Route]:
        """Return all routes whose path begins with ``/api``."""
        one = "/api/rollouts/{rollout_id}"
        return [
            *super().routes(),
            Route("POST", "/api/rollouts", self._create_rollouts),
            Route("GET", "/api/rollouts", self._list_rollouts),
            Route("GET", "/api/rollouts/terminal", self._list_terminal),
            Route("GET", one, self._get_rollout),
            Route("PATCH", one, self._patch_rollout),
            Route("DELETE", one, self._delete_rollout),
            Route("GET", one + "/events", self._list_events),
            Route("POST", ATTEMPT + "/events", self._add_event),
            Route("POST", "/api/models", self._register_models),
            Route("DELETE", "/api/models", self._delete_models),
        ]

    async def _create_rollouts(self, request: Request) -> web.Response:
        items = schemas.read_rollouts(await read_json(request))
        for item in items:
            name = item.rollout_id or ""
            if len(name) > MOST_NAME or "/" in name or name in _NOT_NAMES:
                message = f"rollout_id = {quoted(name)} cannot be part of an address, "
                message += "or has another meaning there. Choose another."
                raise invalid(message, status=422)
        return _rollouts(self._store.create_rollouts(items), status=201)

    async def _list_rollouts(self, request: Request) -> web.Response:
        """Return rollouts in the given states; wait up to ``wait_s`` for one."""
        asked = request.query.getall("state_in", [])
        states = set(schemas.STATES.validate_python(asked))
        if not states:
            raise invalid("Query parameter state_in is missing.", status=422)
        limit = max(_number(request, "limit", 500), 0)
        if wait_s := _wait_s(request):
            await self._store.changes.wait(
                lambda: self._store.list_rollouts(states, 1), wait_s
            )
        found = await asyncio.to_thread(self._store.list_rollouts, states, limit)
        return _rollouts(found)

    async def _list_terminal(self, request: Request) -> web.Response:
        after = max(_number(request, "after", 0), 0)
        limit = max(_number(request, "limit", 1000), 1)
        found, after, total = await asyncio.to_thread(
            self._store.list_terminal, after, limit
        )
        items = [schemas.ended_body(rollout) for rollout in found]
        return reply({"items": items, "next_after": after, "total_terminal": total})

    async def _get_rollout(self, request: Request) -> web.Response:
        """Return a rollout as soon as it ends, or after ``wait_s`` seconds."""
        rollout_id, store = self._shown(request), self._store
        rollout = store.get(rollout_id)
        if wait_s := _wait_s(request):
            await store.changes.wait(lambda: store.has_ended(rollout_id), wait_s)
            rollout = store.get(rollout_id)
        attempts = await asyncio.to_thread(store.attempts, rollout_id)
        shown = schemas.rollout_body(rollout)
        return reply({"rollout": shown, "attempts": attempts})

    async def _patch_rollout(self, request: Request) -> web.Response:
        status = schemas.read_change(await read_json(request))
        if len(name := status.last_attempt_id or "") > MOST_NAME:
            raise invalid(f"last_attempt_id = {quoted(name)} is too long.", status=422)
        changed = self._store.patch(self._shown(request), status)
        return reply(schemas.rollout_body(changed))

    async def _delete_rollout(self, request: Request) -> web.Response:
        if self._deletes:
            self._store.hide(request.names["rollout_id"])
        return web.Response(status=204)

    async def _list_events(self, request: Request) -> web.Response:
        """Return the events of the attempt ``attempt_id``, or of the last attempt."""
        rollout_id, query = self._shown(request), request.query
        events = await asyncio.to_thread(
            self._store.events, rollout_id, query.get("attempt_id")
        )
        if "event_type" in query:
            events = [e for e in events if e.event_type == query["event_type"]]
        if query.get("include_routed_experts", "true").lower() in _FALSE:
            events = [event.without_routes() for event in events]
        if query.get("format") == "triplet":
            return reply(schemas.triplet_bodies(events))
        return reply([schemas.event_body(event) for event in events])

    async def _add_event(self, request: Request) -> web.Response:
        body = NewEvent.model_validate(await read_json(request))
        where = self._where(request)
        self._check(body)
        added = self._store.add_event(**where, **dict(body))
        return reply(schemas.event_body(added))

    async def _register_models(self, request: Request) -> web.Response:
        models = schemas.SERVERS.validate_python(await read_json(request))
        for model in models:
            if not _ADDRESS.match(model.endpoint):
                message = (
                    f"endpoint = {quoted(model.endpoint)} is not an address, such as "
                    "http://127.0.0.1:8000/v1."
                )
                raise invalid(message, status=422)
        if not self._takes_models:
            message = "This gateway serves the policy it was started with; it forwards "
            message += "to no registered model server."
            raise ApiError(409, message, "policy_given")
        self._store.register_models(models)
        return reply(models, status=201)

    async def _delete_models(self, request: Request) -> web.Response:
        self._store.clear_models()
        return reply({"status": "ok"})


def _rollouts(found: Sequence[Rollout], status: int = 200) -> web.Response:
    return reply([schemas.rollout_body(rollout) for rollout in found], status)


def _number[N: (int, float)](request: Request, name: str, default: N) -> N:
    value = request.query.get(name, default)
    try:
        number = type(default)(value)
        if not abs(number) <= _MOST:
            raise ValueError
        return number
    except ValueError:
        kind = "whole number" if isinstance(default, int) else "number"
        message = f"{name} = {quoted(value)} is not a valid {kind}."
        raise invalid(message, status=422) from None


def _wait_s(request: Request) -> float:
    return min(max(_number(request, "wait_s", 0.0), 0.0), MAX_WAIT_S)
