"""Where a provider is asked: at another address only if its key may be sent there."""

import re
from pathlib import Path

import pytest

from agentgym.errors import ComputeError
from agentgym.plugins.cloud.base import Machine, MachineState, Provider
from agentgym.plugins.cloud.providers.lambda_cloud import LambdaCloud
from agentgym.plugins.cloud.providers.runpod import RunPod
from tests.plugins.cloud.fakes.lambda_cloud import FakeLambda
from tests.plugins.cloud.fakes.runpod import FakeRunPod


@pytest.mark.parametrize("kind", [RunPod, LambdaCloud])
def test_another_address_is_asked(
    runpod: FakeRunPod,
    lambda_cloud: FakeLambda,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[RunPod | LambdaCloud],
) -> None:
    fake = runpod if kind is RunPod else lambda_cloud
    monkeypatch.setattr(kind, "url", "http://127.0.0.1:9")
    monkeypatch.setenv(kind.url_variable, f"{fake.url}/")
    provider = kind()
    assert provider.machines() == []
    machine = Machine(kind.name, "x", "agentgym-x", MachineState.RUNNING)
    assert provider.ending(machine).url.startswith(f"{fake.url}/")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("http://proxy.example/v2", "must begin with https://"),
        ("http://127.0.0.1.example/v2", "must begin with https://"),
        ("http://localhost@proxy.example/", "must begin with https://"),
        ("ftp://127.0.0.1/", "must begin with https://"),
        ("proxy.example", "must begin with https://"),
        ("https://", "must begin with https://"),
        ("https://me:word@proxy.example/v2", "scheme, host and path alone"),
        ("https://proxy.example/v2?x=1", "scheme, host and path alone"),
        ("https://proxy.example:port/", "must begin with https://"),
    ],
)
def test_a_key_is_not_sent_where_others_read_it(
    monkeypatch: pytest.MonkeyPatch, given: str, words: str
) -> None:
    monkeypatch.setenv("RUNPOD_API_KEY", "planted-1234567")
    monkeypatch.setenv("RUNPOD_API_URL", given)
    with pytest.raises(ComputeError, match=f"RUNPOD_API_URL.*{re.escape(words)}"):
        RunPod().check()


@pytest.mark.parametrize("given", ["https://proxy.example/v2", "http://[::1]:8080"])
def test_an_encrypted_address_or_one_of_this_machine_is_taken(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("LAMBDA_API_KEY", "planted-1234567")
    monkeypatch.setenv("LAMBDA_API_URL", given)
    provider: Provider = LambdaCloud()
    provider.check()


def test_a_folder_of_somebody_else_sends_no_key_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its file .env may say what it likes: the command line reads that."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUNPOD_API_KEY", "planted-1234567")
    Path(".env").write_text("RUNPOD_API_URL=https://evil.example/v2\n")
    monkeypatch.setenv("RUNPOD_API_URL", "https://evil.example/v2")
    with pytest.raises(ComputeError, match=r"set in the file \.env.*export it"):
        RunPod().check()
