"""Client and server: the key, the lease, and what goes wrong on the other side."""

import threading
import time
from collections.abc import Callable

import httpx
import psutil
import pytest

from agentgym.errors import EngineError, UsageError
from agentgym.plugins.verl.engine import VerlClient
from agentgym.plugins.verl.protocol import PROTOCOL
from tests.plugins.verl.conftest import KEY, Server

Servers = Callable[[], Server]
ROW = {"ids": [5, 6, 7], "start": 1, "trained": [(1, -0.5, 1.0), (2, -0.25, 1.0)]}


def settings(script: str = "") -> dict[str, str]:
    return {"actor_rollout_ref.model.path": "m", "script": script}


def ask_update(client: VerlClient, **given: object) -> object:
    update = {"rows": [ROW], "version": 1, "rate": 1e-4, "temperature": 1.0}
    return client.ask("update", **{**update, **given})


@pytest.mark.slow
def test_a_started_server_says_where_it_answers_and_updates(servers: Servers) -> None:
    client = servers().client()
    state = client.start(settings())
    assert state["servers"] == ["http://127.0.0.1:9/v1"]
    assert state["model"] == "m"
    done = ask_update(client)
    assert done == {"loss": 1.0, "grad_norm": 1.0, "gap": 0.001, "kl": 0.0001}
    client.close()


@pytest.mark.slow
def test_all_that_a_server_started_ends_with_its_client(servers: Servers) -> None:
    server = servers()
    client = server.client()
    client.start(settings("children"))
    below = psutil.Process(server.process.pid).children(recursive=True)
    assert len(below) >= 3  # the driver and what it started, wherever it went
    client.close()
    server.process.wait(60)
    assert not psutil.wait_procs(below, timeout=30)[1]
    assert not server.folder.exists()


@pytest.mark.slow
def test_a_wrong_key_is_refused(servers: Servers) -> None:
    with pytest.raises(UsageError, match=r"\(401\): the key is not the one of"):
        servers().client("another").start(settings())


@pytest.mark.slow
def test_a_client_of_another_version_is_refused(servers: Servers) -> None:
    address = servers().address
    answer = httpx.post(
        f"http://{address}/start",
        json={"protocol": PROTOCOL + 1, "settings": {}},
        headers={"Authorization": f"Bearer {KEY}"},
    )
    assert answer.status_code == 409
    assert "install the same agentgym on both sides" in answer.json()["error"]


@pytest.mark.slow
def test_a_second_client_is_refused_and_the_first_goes_on(servers: Servers) -> None:
    server = servers()
    first, second = server.client(), server.client()
    first.start(settings())
    with pytest.raises(UsageError, match="another run uses this server"):
        second.start(settings())
    assert ask_update(first)
    first.close()


@pytest.mark.slow
def test_why_verl_does_not_start_is_told(servers: Servers) -> None:
    with pytest.raises(EngineError, match="ValueError: there is no such model"):
        servers().client().start(settings("no start"))


@pytest.mark.slow
def test_a_driver_that_dies_in_a_step_is_an_error_with_its_last_words(
    servers: Servers,
) -> None:
    client = servers().client()
    client.start(settings("dies"))
    with pytest.raises(EngineError, match="an illegal memory access"):
        ask_update(client)
    client.close()


@pytest.mark.slow
def test_a_server_that_is_killed_is_an_error(servers: Servers) -> None:
    server = servers()
    client = server.client()
    client.start(settings("slow"))
    below = psutil.Process(server.process.pid).children(recursive=True)
    threading.Timer(0.5, server.process.kill).start()
    with pytest.raises(EngineError, match=server.address):
        ask_update(client)
    client.close()
    assert not psutil.wait_procs(below, timeout=30)[1]


@pytest.mark.slow
def test_a_failed_update_leaves_the_server_usable(servers: Servers) -> None:
    client = servers().client()
    client.start(settings("fails"))
    for _ in range(2):
        with pytest.raises(EngineError, match="RuntimeError: out of memory"):
            ask_update(client)
    client.close()


@pytest.mark.slow
def test_an_overloaded_server_is_asked_again(servers: Servers) -> None:
    client = servers().client()
    client.start(settings("slow"))
    busy = threading.Thread(target=ask_update, args=(client,))
    busy.start()
    time.sleep(0.5)
    assert ask_update(client)
    busy.join()
    client.close()


def test_a_server_that_stays_overloaded_is_an_error() -> None:
    client = VerlClient("127.0.0.1:1", KEY, busy_s=0.0)
    refused = httpx.Response(503, json={"error": "busy"})
    client._http = httpx.Client(
        base_url="http://there", transport=httpx.MockTransport(lambda _: refused)
    )
    with pytest.raises(EngineError, match="overloaded: /update was refused 30 times"):
        ask_update(client)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"ids": [1, 2]}, "KeyError: 'start'"),
        ({**ROW, "start": 0}, "start = 0 is not within its 3 tokens"),
        ({**ROW, "trained": [(3, -1.0, 1.0)]}, "position 3 is not from 1 to 2"),
        ({**ROW, "trained": [(1, 0.5, 1.0)]}, "log-probability 0.5"),
        ("row", "TypeError"),
    ],
)
def test_a_row_that_is_none_is_refused(servers: Servers, row: object, why: str) -> None:
    client = servers().client()
    client.start(settings())
    with pytest.raises(EngineError, match=r"\(400\): row 0: ") as refused:
        ask_update(client, rows=[row])
    assert why in str(refused.value)
    client.close()


def test_nobody_there_is_an_error() -> None:
    with pytest.raises(EngineError, match=r"127\.0\.0\.1:1 does not answer"):
        VerlClient("127.0.0.1:1", KEY).start(settings())
