"""Trajectories in formats of other tools hold what happened, by their rules."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import (
    ModelCall,
    RequestedCall,
    RolloutStatus,
    ToolCall,
    Trajectory,
)
from agentgym.errors import UsageError
from agentgym.plugins.formats.exports import atif_records, chat_records
from agentgym.plugins.logs import from_logs
from agentgym.rollout import TrajectoryWriter, read_jsonl

SYSTEM: dict[str, Any] = {"role": "system", "content": "Be brief."}
ASKED: dict[str, Any] = {"role": "user", "content": "Read a."}
READ = RequestedCall(id="c1", name="read", arguments='{"path": "a"}')
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "read", "parameters": PARAMETERS}}


def said(*calls: RequestedCall) -> dict[str, Any]:
    made = [call.to_openai() for call in calls]
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(text: str, call: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": text}


def rollout() -> Trajectory:
    """Return one of two turns, with token ids, and a call that is malformed."""
    broken = RequestedCall(id="c2", name="read", arguments='{"path"')
    first = [SYSTEM, ASKED]
    second = [*first, said(READ), result("text", "c1")]
    third = [
        *second,
        {"role": "assistant", "content": "It says text."},
        {"role": "user", "content": [{"type": "text", "text": "And b?"}]},
    ]
    steps = [
        ModelCall(messages=first, tools=[TOOL], tool_calls=[READ], prompt_ids=[1, 2],
                  response_ids=[3, 4], logprobs=[-0.5, -0.25]),
        ToolCall(id="c1", name="read", arguments={"path": "a"}, result="text"),
        ModelCall(messages=second, content="It says text."),
        ModelCall(messages=third, tool_calls=[broken], agent="agent"),
        ToolCall(name="read", outcome=ToolOutcome.MALFORMED, result="Error: no JSON"),
    ]  # fmt: skip
    return Trajectory(
        rollout_id="r1", scenario="files", task_id="t", steps=steps, reward=0.5,
        success=False, status=RolloutStatus.FAILED,
    )  # fmt: skip


def test_atif_has_every_step_with_its_results() -> None:
    (made,) = atif_records(rollout())
    assert (made["schema_version"], made["session_id"]) == ("ATIF-v1.7", "r1")
    assert made["agent"]["tool_definitions"] == [TOOL]
    assert made["extra"]["reward"] == 0.5
    steps = made["steps"]
    assert [step["step_id"] for step in steps] == [1, 2, 3, 4, 5, 6]
    sources = [step["source"] for step in steps]
    assert sources == ["system", "user", "agent", "agent", "user", "agent"]
    assert [step["message"] for step in steps[3:5]] == ["It says text.", "And b?"]
    called = {"tool_call_id": "c1", "function_name": "read"}
    assert steps[2]["tool_calls"] == [{**called, "arguments": {"path": "a"}}]
    extra = {"tool": "read", "outcome": "ok"}
    answered = {"source_call_id": "c1", "content": "text", "extra": extra}
    assert steps[2]["observation"] == {"results": [answered]}
    assert steps[2]["metrics"]["completion_token_ids"] == [3, 4]
    assert steps[2]["metrics"]["logprobs"] == [-0.5, -0.25]
    assert steps[5]["tool_calls"][0]["extra"] == {"malformed": '{"path"'}
    assert "source_call_id" not in steps[5]["observation"]["results"][0]


def test_chat_messages_are_those_of_the_longest_conversation() -> None:
    (made,) = chat_records(rollout())
    roles = [message["role"] for message in made["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user",
                     "assistant"]  # fmt: skip
    assert made["metadata"]["reward"] == 0.5


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("x.atif.json", "atif"),
        ("x.openai.jsonl", "openai"),
        ("atif.jsonl", "jsonl"),
    ],
)
def test_a_files_name_says_its_format(tmp_path: Path, name: str, form: str) -> None:
    with TrajectoryWriter(tmp_path / name) as writer:
        writer.write(rollout())
    lines = (tmp_path / name).read_text().splitlines()
    made = {
        "atif": atif_records(rollout()),
        "openai": chat_records(rollout()),
        "jsonl": [rollout().to_dict()],
    }
    assert [json.loads(line) for line in lines] == made[form]
    if form == "jsonl":
        assert read_jsonl(tmp_path / name) == [rollout()]


def test_tasks_are_made_of_atif(tmp_path: Path) -> None:
    path = tmp_path / "x.atif.json"
    with TrajectoryWriter(path) as writer:
        writer.write(rollout())
    found = from_logs(path)
    (line,) = [json.loads(text) for text in found.text.splitlines() if text[0] == "{"]
    assert line.pop("tools")[0]["function"]["name"] == "read"
    assert found.kinds == ("ATIF",)
    needed = {"tool": "read", "args": {"path": "a"}, "answer": "text"}
    assert line == {"instruction": "Read a.", "expect": [needed]}


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ([1], "its steps are not a list of objects"),
        ([{"source": "agent"}], "a step has no message"),
    ],
)
def test_atif_that_cannot_be_read_is_named(
    tmp_path: Path, steps: Any, why: str
) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"schema_version": "ATIF-v1.7", "steps": steps}))
    with pytest.raises(UsageError, match=f"as the first is line 1: {why}"):
        from_logs(path)


_VALIDATE = """
import json, sys
from harbor.models.trajectories import Trajectory
found = [Trajectory.model_validate(json.loads(line)) for line in sys.stdin]
print(len(found), len(found[0].steps))
"""


@pytest.mark.slow
@pytest.mark.skipif(
    "FORMATS_ENVIRONMENT" not in os.environ,
    reason="FORMATS_ENVIRONMENT, with inspect-ai and harbor, is not set",
)
def test_harbor_s_own_schema_accepts_it(tmp_path: Path) -> None:
    path = tmp_path / "x.atif.jsonl"
    team = [
        ModelCall(messages=[ASKED], content="Ask b.", agent="lead"),
        ModelCall(messages=[ASKED], content="Done.", agent="worker"),
    ]
    with TrajectoryWriter(path) as writer:
        writer.write(rollout())
        writer.write(
            Trajectory(rollout_id="r", scenario="s", task_id="t", steps=[*team])
        )
    python = Path(os.environ["FORMATS_ENVIRONMENT"], "bin", "python")
    ended = subprocess.run(
        [python, "-c", _VALIDATE],
        input=path.read_text(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["2", "6"]
