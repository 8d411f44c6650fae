"""The oracle's conversations, with the rules and with some of them left out."""

import json

from agentgym.core.task import Split
from agentgym.packs.coding.scenario import SYSTEM_PROMPT, CodingScenario
from agentgym.sandbox import Sandbox
from recipes.nano.coding_oracle import demonstrate
from tests.some import some


async def test_a_demonstration_is_an_openai_conversation(sandbox: Sandbox) -> None:
    specs = {spec.name: spec for spec in CodingScenario().tools()}
    for task in some(CodingScenario().tasks(Split.TRAIN, 0, 57)):
        messages = (await demonstrate(task, sandbox)).messages
        assert messages[0] == {"role": "system", "content": SYSTEM_PROMPT}
        assert messages[1] == {"role": "user", "content": task.instruction}
        for call, result in zip(messages[2:-1:2], messages[3:-1:2], strict=True):
            assert call["content"] is None
            [made] = call["tool_calls"]
            specs[made["function"]["name"]].validate(
                json.loads(made["function"]["arguments"])
            )
            assert result["tool_call_id"] == made["id"]
            assert not result["content"].startswith("Error")
            assert len(result["content"]) <= 500
        assert messages[-1]["role"] == "assistant"
        assert 1 <= len(messages[-1]["content"].split()) <= 8
        assert sum(len(str(m.get("content") or "")) for m in messages) < 2_300
