"""Providers: from what a user types to a server, a model and a key."""

import json

import pytest

from agentgym.errors import ModelError, NotFoundError, ProviderError, UsageError
from agentgym.models.reference import (
    KEY_OF_ADDRESS,
    refusal,
    resolve_model,
)
from tests.rollout.stub_server import StubServer

ONE = json.dumps({"data": [{"id": "org/some-model"}]})
TWO = json.dumps({"data": [{"id": "a"}, {"id": "b"}]})


def test_a_provider_and_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", " secret\n")
    found = resolve_model("OpenRouter:some/model:free")
    assert found.servers[0] == "https://openrouter.ai/api/v1"
    assert (found.model, found.api_key) == ("some/model:free", "secret")
    assert "secret" not in repr(found)


@pytest.mark.parametrize("name", ["openai", "xai"])
def test_a_missing_key_names_its_variable(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = f"{name.upper()}_API_KEY"
    monkeypatch.delenv(variable, raising=False)
    with pytest.raises(UsageError, match=variable):
        resolve_model(f"{name}:some-model")


@pytest.mark.parametrize(
    ("provider", "address", "url"),
    [
        ("openai", "http://proxy:4000/v1/", "http://proxy:4000/v1"),
        ("anthropic", "http://proxy:4000", "http://proxy:4000/v1"),
    ],
)
def test_a_base_url_of_the_environment_replaces_the_providers_own(
    provider: str, address: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{provider.upper()}_BASE_URL", address)
    monkeypatch.delenv(f"{provider.upper()}_API_KEY", raising=False)
    found = resolve_model(f"{provider}:m")  # a proxy may do without a key
    assert (found.servers, found.model, found.api_key) == ((url,), "m", "")
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", "k")
    assert resolve_model(f"{provider}:m").api_key == "k"
    assert f"{provider.upper()}_API_KEY" in refusal(url, 401, "no")
    monkeypatch.setenv(f"{provider.upper()}_BASE_URL", "proxy")
    with pytest.raises(UsageError, match=f"{provider.upper()}_BASE_URL: 'proxy' is"):
        resolve_model(f"{provider}:m")


def test_an_unknown_provider_is_told_the_nearest() -> None:
    with pytest.raises(NotFoundError, match="mean 'anthropic'.*openai.*#MODEL"):
        resolve_model("antropic:claude")


@pytest.mark.parametrize("spec", ["openai:", "org/model"])
def test_what_names_no_model_is_refused(spec: str) -> None:
    with pytest.raises(UsageError):
        resolve_model(spec)


def test_an_address_with_a_model_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_OF_ADDRESS, "k")
    monkeypatch.setenv("OPENAI_API_KEY", "not for strangers")
    found = resolve_model("http://127.0.0.1:1/v1/#org/m")
    assert (found.servers, found.model) == (("http://127.0.0.1:1/v1",), "org/m")
    assert found.api_key == "k"


@pytest.mark.parametrize(
    "spec",
    [
        "http://a:1/v1,http://b:2/v1/#org/m",
        "http://a:1/v1,http://b:2/v1,http://a:1/v1/#org/m",
    ],
)
def test_several_addresses_of_one_model(spec: str) -> None:
    found = resolve_model(spec)
    assert found.servers == ("http://a:1/v1", "http://b:2/v1")
    assert found.model == "org/m"


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("http://a/v1#m,http://b/v1#n", "names 2 models"),
        ("http://a/v1,b/v1#m", "'http://a/v1,b/v1' is not an address"),
        ("http://a:port/v1#m", "is not an address"),
        ("http:///v1#m", "is not an address"),
    ],
)
def test_addresses_that_make_no_sense_are_refused(spec: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        resolve_model(spec)


def test_several_servers_are_asked_and_must_have_the_same_model(
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = json.dumps({"data": [{"id": "other"}]})
    with (
        StubServer(models=(200, ONE)) as one,
        StubServer(models=(200, ONE)) as two,
        StubServer(models=(200, other)) as three,
    ):
        urls = [server.endpoint for server in (one, two, three)]
        assert resolve_model(",".join(urls[:2])).model == "org/some-model"
        with pytest.raises(ModelError, match=f"differ: {urls[0]} has org/some-model"):
            resolve_model(",".join(urls))
        two.stop()
        assert resolve_model(",".join(urls[:2])).model == "org/some-model"
        assert f"{urls[1]} does not answer" in caplog.text
        one.stop()
        with pytest.raises(ModelError, match="does not answer"):
            resolve_model(",".join(urls[:2]))


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (200, TWO, "2 models \\(a, b\\)"),
        (200, "<html>", "no list of models \\(status 200\\)"),
        (500, ONE, "no list of models \\(status 500\\)"),
    ],
)
def test_no_single_model_is_refused(status: int, body: str, message: str) -> None:
    with (
        StubServer(models=(status, body)) as server,
        pytest.raises(ModelError, match=f"{message}.*#MODEL"),
    ):
        resolve_model(server.endpoint)


@pytest.mark.parametrize("status", [401])
def test_a_refused_key_says_where_it_came_from(status: int) -> None:
    with (
        StubServer(models=(status, '{"error": "who are you?"}')) as server,
        pytest.raises(ProviderError, match=f"{status}.*who are.*{KEY_OF_ADDRESS}"),
    ):
        resolve_model(server.endpoint)


def test_a_wrong_path_is_guessed() -> None:
    with (
        StubServer(models=(200, ONE)) as server,
        pytest.raises(ModelError, match=f"Is it {server.endpoint}\\?"),
    ):
        resolve_model(server.endpoint.removesuffix("/v1"))
