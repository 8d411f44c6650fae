"""AG2's agents, which are no agents of Microsoft's AutoGen.

A module stands in for AG2: it wants another openai than CrewAI does.
"""

import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Command, agentgym

__all__ = ["agentgym"]

SHOP = """
from {package} import AssistantAgent

assistant = AssistantAgent()


def make(llm):
    return AssistantAgent()
"""


@pytest.mark.parametrize("package", ["autogen", "ag2"])
@pytest.mark.parametrize("name", ["assistant", "make"])
def test_the_command_that_trains_such_an_agent_is_said(
    agentgym: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    package: str,
    name: str,
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    own = f"{package}_desk"
    for module in (package, own):
        monkeypatch.delitem(sys.modules, module, raising=False)
    (tmp_path / f"{package}.py").write_text(
        "class ConversableAgent: ...\nclass AssistantAgent(ConversableAgent): ...\n"
    )
    (tmp_path / f"{own}.py").write_text(SHOP.format(package=package))
    ended = agentgym("inspect", f"{own}:{name}")
    for module in (package, own):
        monkeypatch.delitem(sys.modules, module, raising=False)
    said = " ".join((ended.out + ended.err).split())
    assert ended.code != 0
    assert "(AssistantAgent) of AG2" in said
    command = f'agentgym train --command "python -m {own}" --tasks tasks.jsonl'
    assert command in said
