"""Looking into agents of LlamaIndex, and giving trained ones back."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentgym.engines.scripted import Reply
from agentgym.integrations.agent_import import load_agent
from agentgym.plugins.llamaindex import LlamaIndexAdapter
from tests.integrations.exported import list_then_say, scripted, trained_in

AUTHORED = "tests.plugins.llamaindex.authored"
ADAPTER = LlamaIndexAdapter()


@pytest.fixture(scope="module")
def authored() -> Any:
    load_agent(f"{AUTHORED}:clerk")
    return sys.modules[AUTHORED]


@pytest.mark.parametrize(
    "first",
    [
        "llama_index.llms.openai",
        pytest.param("llama_index.core.llms", marks=pytest.mark.slow),
    ],
)
def test_any_import_of_its_may_be_the_first(tmp_path: Path, first: str) -> None:
    (tmp_path / "app.py").write_text(
        f"import {first}\n"
        "from llama_index.core.agent.workflow import FunctionAgent\n"
        "from llama_index.llms.openai import OpenAI\n"
        "agent = FunctionAgent(llm=OpenAI(model='gpt-4o'))\n"
    )
    code = (
        "from agentgym.integrations.agent_import import build\n"
        "adapter, made = build('app:agent')\n"
        "adapter.require_agent(made, 'app:agent')\n"
        "print(adapter.name)\n"
    )
    words = [sys.executable, "-c", code]
    made = subprocess.run(words, cwd=tmp_path, capture_output=True, check=False)
    assert made.stdout == b"llamaindex\n", made.stderr


async def test_its_own_tools_do_what_they_do(authored: Any) -> None:
    [shout] = ADAPTER.tools_of(authored.clerk.tools[1])
    assert await shout(word="hey") == "HEY"
    [shout] = ADAPTER.tools_of(authored.named.tools[0])
    assert (shout.spec.name, await shout(word="ho")) == ("my_shout", "HO")
    [leave] = ADAPTER.tools_of(authored.quitting.tools[0])
    with pytest.raises(RuntimeError, match=r"quit_all called sys.exit\(3\)"):
        await leave()


async def test_its_own_agents_come_back_with_the_trained_model_throughout(
    authored: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def respond(request: Any) -> Reply:
        last, system = request.messages[-1], request.messages[0]["content"]
        if system != "You lead.":
            return list_then_say(request)
        if last["role"] == "tool":
            return Reply(str(last["content"]))
        return Reply(calls=[("ask_clerk", {"question": "?"})])

    asked = scripted(monkeypatch, respond)
    trained = trained_in(tmp_path, "llamaindex", f"{AUTHORED}:boss")
    agent = trained.to_llamaindex()
    assert type(agent) is type(authored.boss)
    assert str(await agent.run("Go.")) == authored.REAL
    assert len(asked) == 4
    assert authored.boss.llm is authored.LLM
    desk = trained.to_llamaindex(agent=authored.desk)
    assert all(authored.LLM is not each.llm for each in desk.agents.values())
    assert all(authored.LLM is each.llm for each in authored.desk.agents.values())


def test_a_trained_model_answers_sync_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, lambda _: Reply("There are two."))
    llm = ADAPTER.trained_model(trained_in(tmp_path, "llamaindex"))
    assert str(llm.complete("How many?")) == "There are two."
