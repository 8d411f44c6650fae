"""Fixtures of providers: fakes in the place of the real ones, which no test reaches."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentgym.plugins.cloud.lease import Waits
from agentgym.plugins.cloud.providers import skypilot
from agentgym.plugins.cloud.providers.api import ApiProvider
from agentgym.plugins.cloud.providers.lambda_cloud import LambdaCloud
from agentgym.plugins.cloud.providers.runpod import RunPod
from agentgym.plugins.cloud.rented import Rented
from tests.plugins.cloud.fakes.lambda_cloud import FakeLambda
from tests.plugins.cloud.fakes.runpod import FakeRunPod
from tests.plugins.cloud.fakes.sky import FakeSky

QUICK = Waits(look_s=0.02, looks=8, up_s=5.0, end_s=5.0)


KEYS = ("RUNPOD_API_KEY", "LAMBDA_API_KEY", "RUNPOD_API_URL", "LAMBDA_API_URL")


@pytest.fixture(autouse=True)
def no_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing reach a real provider, and nobody wait."""
    for variable in KEYS:
        monkeypatch.delenv(variable, raising=False)
    for kind in (RunPod, LambdaCloud):
        monkeypatch.setattr(kind, "url", "http://127.0.0.1:9")
    monkeypatch.setattr(LambdaCloud, "interval_s", 0.0)
    monkeypatch.setattr(LambdaCloud, "backoff_s", 0.005)
    monkeypatch.setattr(ApiProvider, "backoff_s", 0.005)
    monkeypatch.setattr(skypilot, "COMMAND", "sky-of-nobody")
    monkeypatch.setattr(Rented, "waits", QUICK)


@pytest.fixture
def runpod(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRunPod]:
    """Serve RunPod's API, with a key for it in the environment."""
    with FakeRunPod() as fake:
        monkeypatch.setattr(RunPod, "url", fake.url)
        monkeypatch.setenv("RUNPOD_API_KEY", fake.key)
        yield fake
        assert fake.strays == []


@pytest.fixture
def lambda_cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLambda]:
    """Serve Lambda's API, with a key for it in the environment."""
    with FakeLambda() as fake:
        monkeypatch.setattr(LambdaCloud, "url", fake.url)
        monkeypatch.setattr(LambdaCloud, "ssh_port", fake.ssh)
        monkeypatch.setenv("LAMBDA_API_KEY", fake.key)
        yield fake
        assert fake.strays == []


@pytest.fixture
def sky(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSky:
    """Put a fake of SkyPilot's command on the path."""
    monkeypatch.setattr(skypilot, "COMMAND", "sky")
    return FakeSky(tmp_path / "sky", monkeypatch)
