"""``agentgym gateway``, and the rows that a trainer elsewhere is given."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from agentgym.rollout.record import read_task
from agentgym.rollout.store.store import Store
from tests.cli.conftest import Command
from tests.rollout.foreign import MODEL, model_server, queue, register, tasks
from tests.rollout.stub_server import StubServer, completion


def start(folder: Path, *words: str, **variables: str) -> "subprocess.Popen[str]":
    where = ["--port", "0", "--data", str(folder), "--model-name", MODEL]
    return subprocess.Popen(
        [sys.executable, "-m", "agentgym", "gateway", *words, *where],
        env={**os.environ, "COLUMNS": "80", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def announced(process: "subprocess.Popen[str]") -> dict[str, str]:
    """Return what it says about itself."""
    assert process.stdout is not None
    found: dict[str, str] = {}
    for line in process.stdout:
        for name in ("address", "agents", "models", "store", "agent key", "API key"):
            if line.strip().startswith(f"{name} "):
                found[name] = line.strip().removeprefix(name).strip()
        if "API key" in found:
            return found
    raise AssertionError(process.stderr and process.stderr.read())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_it_serves_with_workers_until_it_is_ended(
    tmp_path: Path, number: int, code: int
) -> None:
    words = "coding", "--framework", "native", "--workers", "1"
    process = start(tmp_path / "data", *words)
    try:
        said = announced(process)
        assert said["agents"] == "1 worker runs coding"
        header = {"Authorization": f"Bearer {said['API key']}"}
        with (
            model_server() as url,
            httpx.Client(base_url=said["address"], headers=header) as api,
        ):
            register(api, url)
            [name] = queue(api, tasks(1))
            path = f"/api/rollouts/{name}"
            ended = api.get(path, params={"wait_s": 60}, timeout=90).json()
            assert ended["rollout"]["status"]["state"] == "succeeded"
    finally:
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
    assert process.returncode == code
    assert told == "The gateway no longer answers.\n"
    assert (tmp_path / "data" / "rollouts.db").is_file()


@pytest.mark.slow
def test_without_a_scenario_a_controller_runs_the_agents(tmp_path: Path) -> None:
    process = start(tmp_path, AGENTGYM_GATEWAY_KEY="a key")
    try:
        said = announced(process)
        assert said["agents"] == "a controller's, each runs `agentgym job`"
        assert said["API key"] == "the one that you gave"
        asked = {"state_in": "queuing"}
        where = said["address"] + "/api/rollouts"
        assert httpx.get(where, params=asked).status_code == 401
        header = {"Authorization": "Bearer a key"}
        assert httpx.get(where, params=asked, headers=header).json() == []
        assert httpx.get(said["address"] + "/healthz").status_code == 200
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130


@pytest.mark.slow
def test_keys_of_its_command_line_are_written_nowhere(tmp_path: Path) -> None:
    upstream = "http://shop:pa55word@127.0.0.1:9/v1"
    process = start(tmp_path, "--api-key", "m1ne!", "--upstream", upstream)
    try:
        address = announced(process)["address"]
        header = {"Authorization": "Bearer m1ne!"}
        with httpx.Client(base_url=address, headers=header) as api:
            queue(api, tasks(1))
            wrong = api.get("/api/rollouts", headers={"Authorization": "Bearer m2ne!"})
            assert wrong.status_code == 401
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    log = (tmp_path / "audit.jsonl").read_text()
    assert "--api-key [redacted] --upstream http://[redacted]@127.0.0.1:9/v1" in log
    for path in tmp_path.rglob("*"):
        found = path.read_bytes()
        assert not [s for s in (b"m1ne!", b"m2ne!", b"pa55word") if s in found], path


@pytest.mark.slow
def test_servers_that_are_given_answer_where_no_trainer_registers_any(
    tmp_path: Path,
) -> None:
    with StubServer() as one, StubServer() as two, StubServer() as gone:
        gone.stop()
        every = one.endpoint, two.endpoint, gone.endpoint
        urls = [one.endpoint, two.endpoint + "/", one.endpoint, gone.endpoint]
        words = [word for url in urls for word in ("--upstream", url)]
        process = start(tmp_path, *words)
        try:
            said = announced(process)
            assert said["models"] == ", ".join(every)
            header = {"Authorization": f"Bearer {said['API key']}"}
            with httpx.Client(base_url=said["address"], headers=header) as api:
                for name in queue(api, tasks(4)):
                    where = f"/proxy/rollout/{name}/attempt/0/mode/train/openai/v1"
                    asked = {"messages": [{"role": "user", "content": "hi"}]}
                    answer = api.post(f"{where}/chat/completions", json=asked)
                    assert answer.json()["prompt_token_ids"] == [1, 2, 3]
        finally:
            time.sleep(1)  # to look once more at what befell whom
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=60)
        line = f"The model server {gone.endpoint} gets no calls: it failed ("
        assert told.count(line) == 1
        assert [len(one.bodies), len(two.bodies)] == [2, 2]
        assert {body["model"] for body in one.bodies} == {MODEL}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_calls_under_way_are_answered_and_recorded_before_it_ends(
    number: signal.Signals, tmp_path: Path
) -> None:
    asked, may_answer = threading.Event(), threading.Event()

    async def slow(request: web.Request, body: dict[str, Any]) -> web.Response:
        asked.set()
        await asyncio.to_thread(may_answer.wait, 60)
        return web.json_response(completion())

    body = {"messages": [{"role": "user", "content": "hi"}]}
    with StubServer(slow) as server, ThreadPoolExecutor(1) as pool:
        process = start(tmp_path, "--upstream", server.endpoint)
        try:
            said = announced(process)
            header = {"Authorization": f"Bearer {said['API key']}"}
            with httpx.Client(
                base_url=said["address"], headers=header, timeout=60
            ) as api:
                [name] = queue(api, tasks(1))
                where = f"/proxy/rollout/{name}/attempt/0/mode/train/openai/v1"
                call = pool.submit(api.post, f"{where}/chat/completions", json=body)
                assert asked.wait(60)
                process.send_signal(number)
                assert process.stderr is not None
                assert "a call under way" in process.stderr.readline()
                with pytest.raises(httpx.TransportError):
                    while True:  # it stops listening after it has said so
                        httpx.get(said["address"] + "/healthz")
                may_answer.set()
                assert call.result().status_code == 200
                process.wait(60)
        finally:
            may_answer.set()
            process.kill()
            process.communicate(timeout=60)
    assert process.returncode == 128 + number
    with Store(tmp_path / "rollouts.db") as store:
        assert len(store.events(name)) == 1


@pytest.mark.slow
def test_workers_that_cannot_start_end_it(tmp_path: Path) -> None:
    (tmp_path / "broken_pack.py").write_text("raise RuntimeError('no pack')")
    process = start(tmp_path / "data", str(tmp_path / "broken_pack.py"))
    _, told = process.communicate(timeout=60)
    assert process.returncode != 0
    assert told.startswith("Error: ")
    assert "no pack" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "Give --model-name"),
        (["--model-name", "m", "--host", "0.0.0.0"], "0.0.0.0 could use the model"),
        (["--model-name", "m", "--port", "70000"], "70000 is not a port"),
        (["no_such", "--model-name", "m"], "No scenario is named 'no_such'"),
        (["coding", "--model-name", "m", "--framework", "x"], "'x'"),
        (["coding", "--model-name", "m", "--timeout", "-1"], "rollout_timeout_s"),
        (
            ["--model-name", "m", "--config", "c.yaml"],
            "unknown setting 'cache_requests'",
        ),
        (["--model-name", "m", "--data", "/dev/null"], "/dev/null cannot be a folder"),
        (["--model-name", "m", "--store", "/"], "/ is a folder: name a file in it"),
        (["--model-name", ""], "Give --model-name"),
        (["--model-name", "m", "--grace", "nan"], "grace = nan: give seconds from 0"),
        (["--model-name", "m", "--grace", "1e300"], "grace = 1e+300"),
        (["--model-name", "m", "--api-key", " "], "begins or ends with a space"),
        *(
            (
                ["--model-name", "m", "--upstream", address],
                f"{address!r} is not an address of a model server",
            )
            for address in ("localhost:8000", "http://a:b/v1", "", "http://a/v1?v=1")
        ),
    ],
)
def test_what_cannot_work_is_refused(
    agentgym: Command, words: list[str], told: str
) -> None:
    Path("c.yaml").write_text("cache_requests: answers")
    ended = agentgym("gateway", *words)
    assert ended.code == 2
    assert told in ended.err
    assert ended.err.count("\n") == 1
    assert not Path("gateway").exists()


def test_tasks_are_printed_as_rows(agentgym: Command, tmp_path: Path) -> None:
    words = "scenarios", "tasks", "coding", "--count", "3", "--split", "validation"
    ended = agentgym(*words)
    assert ended.code == 0
    rows = [json.loads(line) for line in ended.out.splitlines()]
    made = [read_task(row) for row in rows]
    assert len({task.id for task in made}) == 3
    assert {task.split for task in made} == {"validation"}
    file = tmp_path / "rows.jsonl"
    assert agentgym(*words, "--output", str(file)).code == 0
    assert file.read_text() == ended.out
    assert "exists" in agentgym(*words, "--output", str(file)).err
    assert "'dev'" in agentgym("scenarios", "tasks", "coding", "--split", "dev").err
