"""Which of several servers is asked next."""

import time

import pytest

from agentgym.models.http import Replicas, Server, ServerPool

THREE = Replicas(("a", "b", "c"), "m")


def pool() -> ServerPool:
    return ServerPool(lambda server: None)


def choose(servers: ServerPool, session: str, replicas: Replicas = THREE) -> Server:
    chosen = servers.choose(replicas, session)
    chosen.in_flight += 1
    return chosen


def test_the_one_with_the_fewest_in_flight_is_asked() -> None:
    servers = pool()
    first = [choose(servers, f"s{i}") for i in range(6)]
    assert [server.url for server in first] == [*"abcabc"]
    first[1].in_flight = 0
    assert [choose(servers, f"t{i}").url for i in range(2)] == ["b", "b"]


def test_a_session_stays_unless_its_server_is_much_busier() -> None:
    servers = pool()
    usual = choose(servers, "s")
    usual.in_flight = 4  # no more than twice nothing, and four
    assert choose(servers, "s") is usual
    other = choose(servers, "s")
    assert other is not usual
    usual.in_flight = other.in_flight = 1
    assert choose(servers, "s") is other  # its prefix is there now


def test_what_is_known_of_a_server_stays_while_others_come_and_go() -> None:
    servers = pool()
    held = choose(servers, "s", Replicas(("a",), "m"))
    assert choose(servers, "t", Replicas(("a", "d"), "m")).url == "d"
    assert held.in_flight == 1
    assert choose(servers, "s", Replicas(("a",), "m")) is held


@pytest.mark.parametrize("trains", [True, False])
def test_a_server_that_was_gone_is_barred_where_weights_change(trains: bool) -> None:
    servers = pool()
    known = Replicas(("a", "b"), "m", trains=trains)
    gone = servers.choose(known, "s")
    servers.answered(gone)
    servers.is_gone(gone)
    assert gone.is_barred is trains
    servers.answered(gone)
    assert gone.is_barred is trains
    servers.renew(gone.url)
    assert not gone.is_barred
    assert not gone.out


def test_of_servers_that_are_all_out_each_is_asked_in_turn() -> None:
    servers = pool()
    known = Replicas(("a", "b"), "m")
    for name in "ab":
        server = servers.choose(known, name)
        servers.failed(server, "failed", at_once=True)
    server.quiet_until = time.monotonic() - 1.0  # it asked to be spared, once
    asked = [servers.choose(known, f"s{i}").url for i in range(4)]
    assert asked == [*"abab"]
