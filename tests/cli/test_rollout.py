"""``agentgym rollout``: through the front door, against a scripted server."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from agentgym.core.trajectory import ModelCall, Trajectory
from agentgym.install import install_command
from agentgym.rollout.trajectory_file import read_jsonl, write_jsonl
from agentgym.scenarios.new_pack import write_pack
from tests.cli.conftest import Command
from tests.rollout.scripted_llm import calling
from tests.rollout.stub_server import StubServer, completion


async def calculating(_: web.Request, body: dict[str, Any]) -> web.Response:
    """Call the calculator, then say what it said."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return web.json_response(completion(f"It is {last['content']}."))
    message = calling("calculator", expression=last["content"])
    return web.json_response(completion(message=message, finish_reason="tool_calls"))


def tasks_in(folder: Path) -> Path:
    path = folder / "tasks.jsonl"
    path.write_text('"6 * 7"\n{"instruction": "2 ** 5", "id": "power"}\n')
    return path


def test_tasks_are_attempted_and_saved(agentgym: Command, tmp_path: Path) -> None:
    with StubServer(calculating) as server:
        ended = agentgym(
            *("rollout", str(tasks_in(tmp_path)), "--model", f"{server.endpoint}#m"),
            *("--tools", "calculator,bash", "--concurrency", "2", "--max-steps", "5"),
            *("--save", "out.jsonl", "--temperature", "0"),
        )
    assert ended.code == 0, ended.err
    assert "2 rollouts: 2 succeeded, 0 failed, 0 dropped" in ended.out
    found = {t.task_id: t.answer for t in read_jsonl(tmp_path / "out.jsonl")}
    assert found == {"task-00000": "It is 42.", "power": "It is 32."}
    assert {b["temperature"] for b in server.bodies} == {0.0}
    shown = agentgym("rollout", "--show", "out.jsonl")
    assert shown.code == 0
    assert "2 succeeded" in shown.out


REWARD = """
import subprocess

print("the reward is imported")


def score(task, trajectory):
    subprocess.run(["echo", "a child scores"])
    print("the reward is computed")
    return 1.0
"""


def test_json_is_all_there_is_on_stdout_whatever_a_reward_prints(
    agentgym: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "talkative_reward.py").write_text(REWARD)
    with StubServer(calculating) as server:
        ended = agentgym(
            *("rollout", str(tasks_in(tmp_path)), "--model", f"{server.endpoint}#m"),
            *("--tools", "calculator", "--reward", "talkative_reward:score", "--json"),
            *("--save", "out.jsonl"),
        )
    told = json.loads(ended.out)
    assert (told["rollouts"], told["tools"]) == (2, {"calculator": 2})
    assert (told["mean_reward"], told["saved"]) == (1.0, "out.jsonl")
    for part in ("the reward is imported", "a child scores", "the reward is computed"):
        assert part in ended.err


@pytest.mark.parametrize("named", ["", "/scenario.py"], ids=["folder", "file"])
def test_a_pack_is_a_scenario_by_its_folder_and_by_its_file(
    agentgym: Command, named: str
) -> None:
    pack = write_pack("heating", Path("my.packs"))
    with StubServer() as server:
        ended = agentgym(
            *("rollout", f"./{pack}{named}", "--model", f"{server.endpoint}#m"),
            *("--count", "2", "--save", "out.jsonl"),
        )
    assert ended.code == 1  # nothing succeeded
    assert "2 rollouts: 0 succeeded, 2 failed" in ended.out
    assert {t.scenario for t in read_jsonl(Path("out.jsonl"))} == {"heating"}


def test_dropped_rollouts_are_explained(agentgym: Command, tmp_path: Path) -> None:
    async def answer(_: web.Request, body: dict[str, Any]) -> web.Response:
        if body["messages"][-1]["content"] == "secret":
            return web.Response(status=401, text="bad key")
        if body["messages"][-1]["content"] == "well":
            return web.json_response(completion())
        return web.Response(status=400, text="what a strange request")

    texts = ["bad"] * 5 + ["well", "secret"]
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("".join(json.dumps(text) + "\n" for text in texts))
    with StubServer(answer) as server:
        words = "rollout", str(tasks), "--model", f"{server.endpoint}#m"
        ended = agentgym(*words)
        told = json.loads(agentgym(*words, "--json").out)
    assert ended.code == 0
    assert "7 rollouts: 1 succeeded, 0 failed, 6 dropped" in ended.out
    assert "5 rollouts dropped: " in ended.out
    assert "1 rollout dropped: " in ended.out
    assert "and 2 more" in " ".join(ended.out.split())
    assert "what a strange request" in ended.out
    first, second = told["drops"]
    assert (first["count"], second["count"]) == (5, 1)
    assert first["tasks"] == ["task-00000", "task-00001", "task-00002"]
    assert second["tasks"] == ["task-00006"]
    assert [name[-5:] for name in first["rollouts"]] == ["00000", "00001", "00002"]
    assert "what a strange request" in first["detail"]
    assert told["reasons"] == {drop["kind"]: drop["count"] for drop in told["drops"]}


def test_answering_here_needs_an_extra_that_is_named(
    agentgym: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    ended = agentgym("rollout", "coding", "--model", "nano")
    assert ended.code == 2
    assert install_command("local") in ended.err


def test_show_names_lost_context_and_cut_lines(
    agentgym: Command, tmp_path: Path
) -> None:
    user = {"role": "user", "content": "Hello?"}
    steps = [
        ModelCall(messages=[user], content="Yes."),
        ModelCall(messages=[{"role": "user", "content": "Still there?"}]),
    ]
    path = tmp_path / "out.jsonl"
    write_jsonl(
        path, [Trajectory(rollout_id="r7", scenario="", task_id="t", steps=steps)]
    )
    with path.open("a") as file:
        file.write('{"version"')
    ended = agentgym("rollout", "--show", "out.jsonl")
    assert ended.code == 0
    assert "Context was lost in 1 rollout" in ended.out
    assert "r7 call 1, message 0: the user message 'Hello?' became" in ended.out
    assert "line 2 was cut" in ended.err
    told = json.loads(agentgym("rollout", "--show", "out.jsonl", "--json").out)
    assert len(told["context_losses"]["r7"]) == 2
    assert told["broken"] == ["line 2 was cut while it was written"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "Give a file of tasks or a scenario"),
        (["coding"], "Give --model"),
        (["coding", "--model", "openai:gpt-4.1-mini"], "OPENAI_API_KEY"),
        (["none.jsonl", "--model", "http://x/v1#m"], "No tasks file is named"),
        (["coding", "--model", "http://x/v1#m", "--split", "all"], "No split"),
        (["coding", "--model", "http://x/v1#m", "--tools", "bash"], "brings its own"),
        (["coding", "--model", "http://x/v1#m", "--agent", "x"], "No agent for"),
        (["--show", "none.jsonl"], "Cannot read none.jsonl"),
        (["--show", "x.atif.json"], "for other tools, in the format atif"),
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2(
    agentgym: Command, monkeypatch: pytest.MonkeyPatch, words: list[str], error: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    ended = agentgym("rollout", *words)
    assert ended.code == 2
    assert error in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_keeps_what_had_ended_and_says_where(
    tmp_path: Path, number: str, code: int
) -> None:
    async def slow(_: web.Request, body: dict[str, Any]) -> web.Response:
        if body["messages"][-1]["content"] != "6 * 7":
            await asyncio.sleep(60)
        return web.json_response(completion())

    with StubServer(slow) as server:
        out = tmp_path / "out.jsonl"
        command = [sys.executable, "-m", "agentgym", "rollout", str(tasks_in(tmp_path))]
        command += ["--model", f"{server.endpoint}#m", "--save", str(out)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not (out.exists() and out.read_text()):
            time.sleep(0.05)
        process.send_signal(signal.Signals[number])
        _, said = process.communicate()
    assert process.returncode == code
    assert said.startswith(f"Interrupted. The rollouts that had ended are in {out}.")
    assert [str(t.reason or "") for t in read_jsonl(out)] == [
        "",
        "cancelled: the batch was ended",
    ]
