"""Cost of a two-call LangChain rollout against an instant model, ours and theirs.

Ours: this package's gateway, store and warm workers. Theirs: ``agl-server`` and
``agl-controller`` (local), the same agent and the same instant model, each rollout a
process of its own; polled each 0.2 s instead of their default 10 s, in their favour.

    uv run python benchmarks/rollouts.py --rollouts 400 --theirs 12
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
from machine import machine

HERE = Path(__file__).parent


def main() -> None:
    """Measure both and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=400)
    parser.add_argument("--theirs", type=int, default=12)
    options = parser.parse_args()
    rows = [
        ("AgentGym", options.rollouts, *ours(options.rollouts)),
        ("agl-server + agl-controller", options.theirs, *theirs(options.theirs)),
    ]
    print(f"{machine()}\n")
    print("| | rollouts | CPU-s per rollout | rollouts/s |")
    print("|---|---|---|---|")
    for name, count, wall, cpu in rows:
        print(f"| {name} | {count} | {cpu / count:.3f} | {count / wall:.1f} |")
    (_, n, wall, cpu), (_, m, their_wall, their_cpu) = rows
    print(
        f"\nratio: {their_cpu / m / (cpu / n):.0f}x less CPU, "
        f"{n / wall / (m / their_wall):.0f}x the rollouts/s"
    )


def ours(count: int) -> tuple[float, float]:
    """Return wall and CPU seconds of ``count`` rollouts, start-up left out."""
    from agentgym.core.config import TrainingConfig
    from agentgym.core.policy import ChatRequest
    from agentgym.core.task import Split
    from agentgym.engines.scripted import Reply, ScriptedPolicy
    from agentgym.rollout.runner import RolloutRequest
    from agentgym.rollout.session import RolloutSession
    from agentgym.scenarios.registry import get_scenario

    def respond(request: ChatRequest) -> Reply:
        if request.messages[-1]["role"] == "tool":
            return Reply(content="Done.")
        return Reply(calls=[("list_files", {})])

    def batch(name: str, size: int) -> list[RolloutRequest]:
        tasks = get_scenario("coding").tasks(Split.TRAIN, 0, size)
        return [
            RolloutRequest(f"{name}-{i}", task, train=True, group=name, step=0)
            for i, task in enumerate(tasks)
        ]

    config = TrainingConfig.create(framework="langchain")
    with (
        tempfile.TemporaryDirectory() as folder,
        RolloutSession(config, ScriptedPolicy(respond), Path(folder), 1) as session,
    ):
        session.run(batch("warm", 16), lambda _: None)
        with measured() as used:
            done = session.run(batch("timed", count), lambda _: None)
            session.flush()
    if any(trajectory.reward is None for trajectory in done):
        raise SystemExit("a rollout was dropped")
    return used[0], used[1]


def theirs(count: int) -> tuple[float, float]:
    """Return wall and CPU seconds of ``count`` rollouts, servers already up."""
    stub_port, server_port = free_port(), free_port()
    base = f"http://127.0.0.1:{server_port}"
    model = "instant"
    commands = [
        [sys.executable, str(HERE / "instant_model.py"), str(stub_port)],
        [
            *(sys.executable, "-m", "agentlightning.server", "host=127.0.0.1"),
            *(f"port={server_port}", f"default_proxy.model_name={model}"),
        ],
    ]
    controller = [
        *(sys.executable, "-m", "agentlightning.controller", "runner_type=local"),
        *(f"agl_server.url={base}", "local_runner.poll_interval=0.2"),
        "local_runner.maximum_size=2",
    ]
    processes = [start(command) for command in commands]
    try:
        with httpx.Client(base_url=base, timeout=30) as client:
            wait_for(client)
            endpoint = f"http://127.0.0.1:{stub_port}/v1"
            body = [{"model": model, "endpoint": endpoint, "version": 0}]
            client.post("/api/models", json=body).raise_for_status()
            agent = "langchain_episode:Agent"
            for _ in range(count):
                rollout = {
                    "input": {"question": "List the files."},
                    "config": {"local": {"agent_class": agent}},
                }
                client.post("/api/rollouts", json=[rollout]).raise_for_status()
            with measured() as used:
                processes.append(start(controller))
                while succeeded(client) < count:
                    time.sleep(0.1)
    finally:
        for process in processes:
            process.terminate()
            process.wait()
    return used[0], used[1]


def succeeded(client: httpx.Client) -> int:
    """Return how many rollouts have succeeded; fail on one that failed."""
    params = [("state_in", "succeeded"), ("state_in", "failed"), ("limit", 500)]
    found = client.get("/api/rollouts", params=params).json()
    failed = [r for r in found if r["status"]["state"] == "failed"]
    if failed:
        raise SystemExit(f"a rollout failed: {json.dumps(failed[0])}")
    return len(found)


@contextmanager
def measured():
    """Yield a list that holds wall and CPU seconds of the process tree at the end."""
    used: list[float] = []
    cpu, wall = tree_cpu(), time.perf_counter()
    yield used
    used += [time.perf_counter() - wall, tree_cpu() - cpu]


def tree_cpu() -> float:
    """Return CPU seconds of this process and all below it, ended ones included."""
    total = 0.0
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
        total += times.children_user + times.children_system
    return total


def start(command: list[str]) -> subprocess.Popen:
    """Start a server in the background, its output thrown away."""
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    return subprocess.Popen(
        command,
        cwd=tempfile.gettempdir(),
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def wait_for(client: httpx.Client) -> None:
    """Wait until the server answers."""
    for _ in range(300):
        try:
            client.get("/healthz").raise_for_status()
            return
        except httpx.HTTPError:
            time.sleep(0.1)
    raise SystemExit("agl-server did not start")


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


if __name__ == "__main__":
    main()
