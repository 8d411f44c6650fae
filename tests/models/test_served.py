"""The name to ask for at a server that was started without AgentGym's name for it."""

import json
import logging
from typing import Any

import pytest

from agentgym.errors import UsageError
from agentgym.models.reference import served_name
from tests.rollout.stub_server import StubServer


def listing(*cards: Any) -> tuple[int, str]:
    return 200, json.dumps({"object": "list", "data": list(cards)})


BASE, ADAPTER = {"id": "/models/base"}, {"id": "agent", "parent": "/models/base"}


@pytest.mark.parametrize(
    ("models", "name"),
    [
        (listing({"id": "coding"}, {"id": "other"}), "coding"),
        (listing({"id": "/srv/coding-model"}), "/srv/coding-model"),
        (listing(BASE, ADAPTER), "agent"),
        (listing(), "coding"),
        ((200, "no JSON"), "coding"),
        ((401, "{}"), "coding"),
    ],
    ids=str,
)
def test_the_name_that_the_server_has(models: tuple[int, str], name: str) -> None:
    with StubServer(models=models) as server:
        assert served_name(server.endpoint, "k", "coding") == name


def test_several_models_without_ours_are_named_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listed = listing(BASE, ADAPTER, {"id": "second", "parent": "x"})
    with caplog.at_level(logging.WARNING), StubServer(models=listed) as server:
        assert served_name(server.endpoint, None, "coding") == "coding"
    assert "has no model 'coding', but /models/base, agent, second" in caplog.text
    assert "--served-model-name coding" in caplog.text


def test_a_server_that_is_not_there_yet_is_asked_for_our_name() -> None:
    assert served_name("http://127.0.0.1:1/v1", None, "coding") == "coding"
    with pytest.raises(UsageError, match="is not an address of a model server"):
        served_name("localhost:8000", None, "coding")
