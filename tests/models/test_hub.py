"""The Hugging Face hub: what is said when it cannot be reached."""

import logging

import huggingface_hub
import pytest

from agentgym.errors import ModelError, UsageError
from agentgym.models.hub import download, require_config


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let requests fail as they do offline: a warning, then an error that hides it."""

    def fail(*args: object, **named: object) -> None:
        logging.getLogger("huggingface_hub.utils._http").warning("No such host")
        raise RuntimeError("Cannot send a request, as the client has been closed.")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)


@pytest.mark.usefixtures("closed")
def test_the_first_failure_is_named_and_nothing_else_is_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(ModelError, match=r"request .* failed \(No such host\)"):
        require_config("nobody/model-of-a-test")
    with pytest.raises(UsageError, match="No such host"):
        download("nobody/agent-of-a-test", "agent.json", "model")
    assert caplog.text == ""


@pytest.mark.usefixtures("closed")
def test_a_trained_agent_in_place_of_a_model_is_told_its_option() -> None:
    with pytest.raises(ModelError, match=r"agentgym eval --agent coding@1$"):
        require_config("coding@1")
