"""The audit log: what is noted, for whom, by many at once, and how it is shown."""

import asyncio
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentgym.cli.main import main
from agentgym.core.policy import ChatRequest
from agentgym.core.task import Task
from agentgym.core.tools import tool
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.integrations.episode import Episode
from agentgym.integrations.run import Ending, run_episode
from agentgym.integrations.transport import speaking_as
from agentgym.plugins.cloud.record import MachineRecord
from agentgym.rollout.gateway.gateway import Gateway
from agentgym.rollout.store.store import Store
from agentgym.sandbox import PythonScript, RunTests, Sandbox, SandboxConfig
from agentgym.scenarios.base import Environment
from agentgym.security import audit
from agentgym.security.audit import AuditLog, asking, audited, digest
from tests.rollout.sessions import requests, session


def entries(path: Path, what: str | None = None) -> list[dict[str, Any]]:
    return [e for e in audit.read(path) if what in (None, e["what"])]


def test_an_execution_is_noted_with_who_asked(tmp_path: Path) -> None:
    script = "import os\nprint(6 * 7)\nraise SystemExit(3)\n"
    files = {"main.py": script, "data.txt": "x" * 9}
    config = SandboxConfig(concurrency=1)
    with audited(AuditLog(tmp_path / "audit.jsonl")), Sandbox(config) as sandbox:
        with asking(rollout="r1", attempt="0", agent="coder", tool="run"):
            first = sandbox.run_sync(files, PythonScript("main.py", ("--fast",)))
            sandbox.run_sync(files, PythonScript("main.py", ("--fast",)))
        sandbox.run_sync({"test_a.py": "def test_a(): assert 0\n"}, RunTests())
    once, again, tests = entries(tmp_path / "audit.jsonl", "executed")
    assert {k: once[k] for k in ("rollout", "attempt", "agent", "tool")} == {
        "rollout": "r1",
        "attempt": "0",
        "agent": "coder",
        "tool": "run",
    }
    assert once["command"] == "python main.py --fast"
    assert once["script"].startswith("import os print(6 * 7)")
    assert once["files"] == {n: digest(text) for n, text in files.items()}
    assert len(once["sha256"]) == 64
    assert (once["status"], once["exit_code"], once["rung"]) == (
        "exited",
        3,
        first.rung,
    )
    assert once["cpu_s"] == first.cpu_s
    assert once["limits"]["memory_mb"] == config.limits.memory_mb
    assert "cached" not in once
    assert again["cached"] is True
    assert again["sha256"] == once["sha256"] != tests["sha256"]
    assert tests["tests"] == "0 of 1 passed"
    assert "rollout" not in tests


def test_a_private_log_has_digests_and_no_texts(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    files = {"secret_plan.py": "print('secret')\n"}
    with (
        audited(AuditLog(path, private=True)),
        Sandbox(SandboxConfig(concurrency=1)) as sandbox,
    ):
        sandbox.run_sync(files, PythonScript("secret_plan.py", ("--secret",)))
    assert "secret" not in path.read_text()
    began, executed = entries(path)
    assert "command" not in began
    assert (executed["exit_code"], len(executed["sha256"])) == (0, 64)


def test_nothing_is_noted_where_no_log_is_kept(tmp_path: Path) -> None:
    audit.note("executed")
    with audited(AuditLog(tmp_path / "audit.jsonl")):
        pass
    assert list(tmp_path.iterdir()) == []


class Desk(Environment):
    @tool
    def ring(self, times: int) -> str:
        """Ring.

        Args:
            times: How often.
        """
        if times > 2:
            raise RuntimeError("broken")
        audit.note("executed", command="ring")
        return "rang"


async def test_a_tool_call_is_noted_with_a_digest_of_its_arguments(
    tmp_path: Path,
) -> None:
    async def drive(episode: Episode) -> str:
        with speaking_as("clerk"):
            await episode.use_tool("ring", {"times": 1}, call_id="c1")
            await episode.use_tool("ring", "{", call_id="c2")
            await episode.use_tool("ring", {"times": 3}, call_id="c3")
        return "done"

    class Scored(Ending):
        async def score(self, *given: Any) -> Any:
            audit.note("executed", command="hidden tests")
            return given[-1]

    task = Task(id="t1", split="train", seed=0, family="f", level=1, instruction="go")
    with audited(AuditLog(tmp_path / "audit.jsonl")):
        for turns in (drive, lambda _: asyncio.sleep(0, "done")):
            await run_episode(
                Episode(task, rollout_id="r1", attempt="2"),
                turns,
                create_environment=lambda _: Desk(),
                ending=Scored(),
            )
    good, malformed, crashed = entries(tmp_path / "audit.jsonl", "tool")
    who = {"rollout": "r1", "attempt": "2", "task": "t1", "agent": "clerk"}
    for entry, call in ((good, "c1"), (malformed, "c2"), (crashed, "c3")):
        assert who.items() <= entry.items()
        assert (entry["tool"], entry["call"]) == ("ring", call)
    assert good["arguments"] == digest({"times": 1}) != crashed["arguments"]
    outcomes = [e["outcome"] for e in (good, malformed, crashed)]
    assert outcomes == ["ok", "malformed", "crash: RuntimeError"]
    inside, scored = entries(tmp_path / "audit.jsonl", "executed")
    assert {**who, "tool": "ring", "call": "c1"}.items() <= inside.items()
    assert scored["purpose"] == "reward"
    assert "tool" not in scored


@pytest.mark.slow
def test_a_run_notes_what_its_workers_execute(tmp_path: Path) -> None:
    def run_then_answer(request: ChatRequest) -> Reply:
        asked = request.messages[-1]["role"] != "tool"
        return Reply(calls=[("run_tests", {})]) if asked else Reply("Done.")

    with session(tmp_path, ScriptedPolicy(run_then_answer)) as opened:
        done = opened.run(requests(2), lambda _: None)
    assert all(t.reward is not None for t in done)
    made = entries(tmp_path, "executed")
    assert {e["rollout"] for e in made} == {"r0-000", "r0-001"}
    assert {(e["agent"], e.get("tool")) for e in made} == {("agent", "run_tests")}
    tools = entries(tmp_path, "tool")
    assert [e["tool"] for e in tools] == ["run_tests"] * 2
    assert {e["task"] for e in tools} == {t.task_id for t in done}
    ends = [e for e in entries(tmp_path, "gateway") if e["path"].endswith("/finish")]
    assert len(ends) == 2
    began = {e["process"]: e["command"] for e in entries(tmp_path, "began")}
    assert {e["process"] for e in (*made, *tools)} <= began.keys()
    assert os.getpid() in began


def test_a_gateway_notes_writes_and_refused_keys(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    with Store() as store, Gateway(store, audit=log) as gateway:
        key = {"X-API-Key": gateway.api_key}
        with httpx.Client(base_url=gateway.url) as client:
            body = [{"rollout_id": "r1", "input": {}}]
            client.post("/api/rollouts", json=body, headers=key)
            client.get("/api/rollouts/r1", headers=key)
            client.post("/api/rollouts/claim", json={"n": 1}, headers=key)
            reward = {"event_type": "reward", "data": {"value": 1.0}}
            where = "/api/rollouts/r1/attempt/0/events"
            client.post(where, json=reward, headers=key)
            client.delete("/api/rollouts/r1", headers=key)
            for _ in range(20):
                client.delete("/api/rollouts/r1", headers={"X-API-Key": "guess"})
    noted = [
        (e["method"], e["path"], e["status"]) for e in entries(log.path, "gateway")
    ]
    assert noted == [
        ("POST", "/api/rollouts", 201),
        ("POST", where, 200),
        ("DELETE", "/api/rollouts/r1", 204),
    ]
    [refused] = entries(log.path, "refused key")  # of one address, once a minute
    assert (refused["status"], refused["peer"]) == (401, "127.0.0.1")


def test_a_machine_is_noted_when_its_fate_changes(tmp_path: Path) -> None:
    record = MachineRecord("agentgym-x", "runpod").write(tmp_path)
    record = record.changed(fate="rented", id="7", hourly=2.5).write(tmp_path)
    record = record.changed(address="ssh").write(tmp_path)
    record.changed(fate="ended", why="done").write(tmp_path)
    noted = entries(tmp_path, "machine")
    assert [e["fate"] for e in noted] == ["asked", "rented", "ended"]
    assert noted[1]["hourly"] == 2.5


WRITER = """
import sys
from pathlib import Path
from agentgym.security.audit import AuditLog
log = AuditLog(Path(sys.argv[1]), most_bytes=12_000)
for number in range(400):
    log.write("executed", writer=sys.argv[2], number=number)
"""


def test_processes_and_threads_write_whole_lines_while_files_turn_over(
    tmp_path: Path,
) -> None:
    path = tmp_path / "audit.jsonl"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name])
        for name in "ab"
    ]
    log = AuditLog(path, most_bytes=12_000)
    with ThreadPoolExecutor(4) as pool:
        list(
            pool.map(lambda n: log.write("executed", writer="c", number=n), range(400))
        )
    assert [writer.wait() for writer in writers] == [0, 0]
    files = sorted(tmp_path.iterdir())
    assert len(files) == audit.KEPT
    assert all(file.stat().st_size < 13_000 for file in files)
    whole = [
        json.loads(line) for file in files for line in file.read_text().splitlines()
    ]
    seen = [(e["writer"], e["number"]) for e in whole if e["what"] == "executed"]
    assert len(seen) == len(set(seen)) > 500  # nothing twice, and most of it is left
    times = [e["at"] for e in audit.read(path)]
    assert times == sorted(times)
    assert path.stat().st_mode & 0o077 == 0


def test_a_full_disk_ends_nothing_and_is_told_later(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    log = AuditLog(folder / "audit.jsonl")
    folder.write_text("a file, not a folder")
    log.write("executed")
    log.write("executed")
    folder.unlink()
    log.write("executed", command="third")
    whats = [e["what"] for e in entries(folder)]
    assert whats == ["began", "lost", "executed"]
    [lost] = entries(folder, "lost")
    assert lost["lines"] == 2


def test_lines_that_were_cut_are_left_out(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    log.write("executed", command="one")
    with log.path.open("a") as file:
        file.write('{"at": "2026", "what"\n[1]\n\xff\n')
    log.write("executed", command="two")
    commands = [e["command"] for e in entries(tmp_path, "executed")]
    assert commands == ["one", "two"]


def test_the_command_shows_filters_and_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "mine"
    log = AuditLog(run / "audit.jsonl")
    with audited(log):
        for number in range(60):
            with asking(rollout=f"r{number % 2}", tool="run"):
                audit.note(
                    *("executed",),
                    command=f"python {number}.py",
                    rung="bubblewrap",
                    exit_code=0,
                    cpu_s=0.02,
                )
    assert main(["runs", "audit", "mine"]) == 0
    shown = capfd.readouterr().out
    assert shown.count("executed (bubblewrap, exit 0, 0.020 CPU s): python") == 50
    assert "for rollout r1, tool run" in shown
    assert datetime.fromisoformat(shown[:19]).year >= 2024
    words = ["runs", "audit", str(run), "--rollout", "r1", "--last", "0", "--json"]
    assert main(words) == 0
    found = json.loads(capfd.readouterr().out)
    assert [e["command"] for e in found] == [f"python {n}.py" for n in range(1, 60, 2)]
    assert main(["runs", "audit", "mine", "--what", "machine"]) == 0
    assert "No such entries" in capfd.readouterr().out
    assert main(["runs", "audit", "mime"]) == 2
    assert "Did you mean" not in capfd.readouterr().err  # that folder is no run
    assert main(["runs", "audit", "mine", "--last", "-1"]) == 2
    assert "--last -1 is not a number" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"what": "lost", "lines": 3}, "3 lines could not be written"),
        (
            {"what": "machine", "name": "x", "provider": "runpod", "fate": "ended"},
            "machine x of runpod: ended",
        ),
        (
            {"what": "executed", "rung": "landlock", "signal": 9, "command": "sh"},
            "executed (landlock, signal 9, 0.000 CPU s): sh",
        ),
        ({"what": "refused key", "method": "GET", "path": "/x", "times": 4}, "4 times"),
        ({"what": "new", "fact": 1}, "new {'fact': 1}"),
        ({}, "unknown"),
    ],
)
def test_every_kind_of_line_is_shown(entry: dict[str, Any], told: str) -> None:
    from agentgym.ui.audit import audit_lines

    assert told in "\n".join(audit_lines([entry]))


@pytest.mark.parametrize("before", [150, 185, 199])
def test_no_beginning_cuts_a_secret_in_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    secret = "correct-horse-battery-staple-" * 3
    monkeypatch.setenv("SHOP_PASSWORD", secret)
    script = f"{'#' * (before - 1)} {secret}\n"
    monkeypatch.setattr(sys, "argv", ["x" * before, secret])
    with audited(AuditLog(tmp_path / "audit.jsonl")), Sandbox() as sandbox:
        sandbox.run_sync({"a.py": script}, PythonScript("a.py", ("-" * before, secret)))
    assert len(entries(tmp_path / "audit.jsonl")) == 2
    assert secret[:8] not in (tmp_path / "audit.jsonl").read_text()
