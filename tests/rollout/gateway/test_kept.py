"""What a gateway whose store a later process goes on with has answered is on disk."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentgym.rollout.gateway.gateway import Gateway
from agentgym.rollout.gateway.protocol import GatewaySettings
from agentgym.rollout.store.store import Store
from tests.rollout.stub_server import StubServer

CALL = {"messages": [{"role": "user", "content": "Hi"}]}


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_answered_is_in_the_file(tmp_path: Path, stream: bool) -> None:
    path, settings = tmp_path / "rollouts.db", GatewaySettings(model_name="m")
    with (
        StubServer() as server,
        Store(path, goes_on=True, group_commit_s=0.5) as store,
        Gateway(store, settings=settings) as gateway,
        closing(sqlite3.connect(path)) as file,
        httpx.Client(headers={"X-API-Key": gateway.api_key}) as api,
    ):

        def kept(method: str, where: str, body: Any, sql: str) -> list[Any]:
            """Return what the file has of a request as soon as it is answered."""
            url = where if "://" in where else f"{gateway.url}/api/{where}"
            api.request(method, url, json=body).raise_for_status()
            return [column for (column,) in file.execute(f"SELECT {sql}")]

        state, kinds = "state FROM rollouts", "event_type FROM events"
        queued = [{"rollout_id": "r", "input": 1}]
        server_of_m = [{"model": "m", "endpoint": server.endpoint}]
        running = {"status": {"state": "running"}}
        reward = {"event_type": "reward", "data": {"value": 1}}
        ended = {"state": "succeeded", "events": [reward]}
        chat, one = f"{gateway.proxy_url('r')}/chat/completions", "rollouts/r/attempt/0"
        assert kept("POST", "rollouts", queued, state) == ["queuing"]
        assert kept("POST", "models", server_of_m, "model FROM models") == ["m"]
        assert kept("PATCH", "rollouts/r", running, state) == ["running"]
        asked = CALL | {"stream": stream}
        assert kept("POST", chat, asked, kinds) == ["model_request"]
        assert len(kept("POST", f"{one}/events", reward, kinds)) == 2
        assert kept("POST", f"{one}/finish", ended, state) == ["succeeded"]
        hidden = "hidden FROM rollouts"
        assert kept("DELETE", "rollouts/r", None, hidden) == [1]
