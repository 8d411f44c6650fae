"""Wording: what replaces an agent's prompts and tool descriptions, and where."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.errors import UsageError
from agentgym.rollout.absolute_paths import located
from agentgym.rollout.gateway.gateway import Gateway
from agentgym.rollout.gateway.protocol import GatewaySettings
from agentgym.rollout.prompt_overrides import NewText, WordedPolicy, Wording
from agentgym.rollout.store.records import NewRollout
from agentgym.rollout.store.store import Store

WORDING = Wording(
    prompts=(NewText(before="You help.", after="You help kindly."),),
    tools={"look": NewText(before="Look.", after="Look twice.")},
)
TOOL = {"type": "function", "function": {"name": "look", "description": "Look."}}
OTHER = {"type": "function", "function": {"name": "leap", "description": "Leap."}}


@pytest.mark.parametrize(
    ("content", "role", "expected"),
    [
        ("You help.", "system", "You help kindly."),
        (" You help.\n", "developer", "You help kindly."),
        ([{"type": "text", "text": "You help."}], "system", "You help kindly."),
        ("You help. Today is Monday.", "system", "You help. Today is Monday."),
        ("You help.", "user", "You help."),
    ],
)
def test_a_system_prompt_is_replaced_as_a_whole(
    content: Any, role: str, expected: Any
) -> None:
    body = {"messages": [{"role": role, "content": content}], "model": "m"}
    [message] = WORDING.applied(body)["messages"]
    assert message == {"role": role, "content": expected}
    assert body["messages"][0]["content"] == content, "the request is not changed"


def test_tools_get_their_descriptions_by_name() -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": [TOOL, OTHER]}
    tools = WORDING.applied(body)["tools"]
    assert [tool["function"]["description"] for tool in tools] == [
        "Look twice.",
        "Leap.",
    ]
    assert TOOL["function"]["description"] == "Look."


def test_a_conversation_without_a_prompt_can_get_one() -> None:
    wording = Wording(prompts=(NewText(before="", after="Be brief."),))
    asked = [{"role": "user", "content": "hi"}]
    found = wording.applied({"messages": asked})["messages"]
    assert found == [{"role": "system", "content": "Be brief."}, *asked]
    with_one = [{"role": "system", "content": "You help."}, *asked]
    assert wording.applied({"messages": with_one})["messages"] == with_one


def test_a_gateway_sends_the_texts_and_takes_others() -> None:
    seen: list[ChatRequest] = []

    def respond(request: ChatRequest) -> Reply:
        seen.append(request)
        return Reply("Done.")

    settings = GatewaySettings(wording=WORDING)
    with (
        Store() as store,
        Gateway(store, policy=ScriptedPolicy(respond), settings=settings) as gateway,
    ):
        store.create_rollouts([NewRollout(rollout_id="r0", input={})])

        def ask() -> None:
            messages = [
                {"role": "system", "content": "You help."},
                {"role": "user", "content": "hi"},
            ]
            httpx.post(
                gateway.proxy_url("r0") + "/chat/completions",
                json={"model": "x", "messages": messages, "tools": [TOOL]},
                headers={"X-API-Key": gateway.api_key},
            ).raise_for_status()

        ask()
        gateway.reword(Wording())
        ask()
    assert [r.messages[0]["content"] for r in seen] == ["You help kindly.", "You help."]
    descriptions = [r.tools[0]["function"]["description"] for r in seen]
    assert descriptions == ["Look twice.", "Look."]


def test_a_policy_is_asked_with_the_texts() -> None:
    seen: list[ChatRequest] = []

    def respond(request: ChatRequest) -> Reply:
        seen.append(request)
        return Reply("Done.")

    policy = WordedPolicy(ScriptedPolicy(respond), WORDING)
    request = ChatRequest([{"role": "system", "content": "You help."}], [TOOL])

    async def ask() -> None:
        await policy.chat(request)
        assert [item async for item in policy.stream(request)]

    asyncio.run(ask())
    assert [each.messages[0]["content"] for each in seen] == ["You help kindly."] * 2
    assert policy.model_name == "scripted"
    assert not policy.failure


def test_a_file_is_read_once_and_means_the_same_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "prompts.json"
    path.write_text(WORDING.text)
    config = located(TrainingConfig.create(framework="native", prompts=str(path)))
    path.unlink()
    assert Wording.parse(located(config).prompts) == WORDING


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "No such file"), ("{", "cannot be read"), ('{"prompt": []}', "prompt: ")],
)
def test_a_file_of_something_else_is_refused(
    tmp_path: Path, content: str | None, says: str
) -> None:
    path = tmp_path / "prompts.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match="agentgym improve") as error:
        located(TrainingConfig.create(framework="native", prompts=str(path)))
    assert says in str(error.value)
