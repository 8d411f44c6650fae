"""A user's agent is imported, made by its factory, and told by its class."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.core.openai import NO_KEY
from agentgym.errors import UsageError
from agentgym.integrations.agent_import import load_agent
from agentgym.rollout.absolute_paths import located

MIXED = """
from autogen_agentchat.agents import AssistantAgent
from langchain.agents import create_agent

def graph(llm):
    return create_agent(llm, [])

def team(model_client):
    return AssistantAgent("a", model_client), model_client

def late():
    from crewai import Agent
    return Agent(role="r", goal="g", backstory="b", llm="openai/gpt-4o")
"""
KEYED = """
import os

class Client:
    def __init__(self):
        if not os.environ.get("DESKS_OWN_API_KEY"):
            raise ValueError("Pass api_key or set DESKS_OWN_API_KEY.")

agent = [Client()], os.environ["OTHER_TOKEN"], os.environ["DESKS_MODEL"]
"""
SETTINGS = """
import os

if os.environ.get("AZURE_OPENAI_API_KEY"):
    os.environ["AZURE_OPENAI_ENDPOINT"]

agent = [os.environ.get("AZURE_OPENAI_API_KEY")]
"""
Write = Callable[[str], int]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Return a function that writes the module ``keyed_of_a_test``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("DESKS_OWN_API_KEY", "OTHER_TOKEN", "DESKS_MODEL"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.delitem(sys.modules, "keyed_of_a_test", raising=False)
    return (tmp_path / "keyed_of_a_test.py").write_text


def framework(name: str, **settings: object) -> str:
    agent = f"keyed_of_a_test:{name}"
    return located(TrainingConfig.create(agent=agent, **settings)).framework


@pytest.mark.slow
def test_a_factorys_framework_is_that_of_the_agent_that_it_returns(
    write: Write,
) -> None:
    write(MIXED)
    assert [framework(name) for name in ("graph", "team", "late")] == [
        "langchain",
        "autogen",
        "crewai",
    ]
    assert framework("team", framework="langchain") == "langchain"  # as the user says


def test_the_keys_that_an_import_asks_for_get_a_placeholder(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    write(KEYED)
    load_agent("keyed_of_a_test:agent")
    said = [record.getMessage() for record in caplog.records]
    assert [text.split(",")[0] for text in said] == [
        "keyed_of_a_test needs DESKS_OWN_API_KEY",
        "keyed_of_a_test needs OTHER_TOKEN",
        "keyed_of_a_test needs DESKS_MODEL",
    ]
    load_agent("keyed_of_a_test:agent")
    assert len(caplog.records) == 3


def test_a_module_that_has_read_a_key_is_imported_again(write: Write) -> None:
    own = "import os\nKEY = os.environ.get('DESKS_OWN_API_KEY')\n"
    Path("settings_of_a_test.py").write_text(own)
    write(
        "import settings_of_a_test as own\n"
        "if own.KEY is None:\n    raise RuntimeError('no DESKS_OWN_API_KEY')\n"
        "agent = own.KEY"
    )
    assert load_agent("keyed_of_a_test:agent") == NO_KEY


def test_a_key_that_is_refused_all_the_same_is_an_error(write: Write) -> None:
    write("raise ValueError('The DESKS_OWN_API_KEY is not valid.')")
    with pytest.raises(UsageError, match="DESKS_OWN_API_KEY is not valid"):
        load_agent("keyed_of_a_test:agent")


def test_a_placeholder_that_selects_another_provider_is_left_out(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    write(SETTINGS)
    assert load_agent("keyed_of_a_test:agent") == [None]
    assert os.environ["AZURE_OPENAI_API_KEY"]  # for models that episodes make
