"""Cost of a two-call LangChain rollout, ours and theirs, against the same model.

Both run the agent of ``langchain_episode.py``, whose model calls go through a gateway
that records them to the server of ``instant_model.py``. Ours: gateway, store and one
warm worker. Theirs: ``agl-server`` and ``agl-controller`` (local), two rollouts at a
time, each a process of its own; polled each 0.2 s instead of their default 10 s, in
their favour.

What starting takes is shown apart: ours is paid once a run (the fork server imports
the framework, a worker is forked, a first rollout), theirs by each rollout (its process
imports the framework and builds the agent). The model, and their server and controller,
are up before.

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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import httpx
import psutil
from machine import machine

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Cost:
    """What rollouts took, in seconds of wall and CPU time.

    Attributes:
        name: Whose they are.
        rollouts: How many.
        start: Of one start, ``starts`` of which there were.
        whole: Of all rollouts; theirs have their starts in it.
    """

    name: str
    rollouts: int
    start: tuple[float, float]
    starts: str
    whole: tuple[float, float]
    cpu: float

    def row(self) -> str:
        """Return its line of the table."""
        wall, cpu = self.start
        rate = self.rollouts / self.whole[0]
        return (
            f"| {self.name} | {self.rollouts} | {cpu:.2f} CPU-s, {wall:.2f} s, "
            f"{self.starts} | {self.cpu:.4f} | {rate:.1f} |"
        )


def main() -> None:
    """Measure both and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=400)
    parser.add_argument("--theirs", type=int, default=12)
    options = parser.parse_args()
    with instant_model() as endpoint:
        mine, other = ours(options.rollouts, endpoint), theirs(options.theirs, endpoint)
    print(f"{machine()}\n")
    print("| | rollouts | a start | CPU-s a rollout, without it | rollouts/s, all in |")
    print("|---|---|---|---|---|")
    print(f"{mine.row()}\n{other.row()}")
    print(
        f"\nafter starting: {other.cpu / mine.cpu:.1f}x less CPU; all in: "
        f"{mine.rollouts / mine.whole[0] / (other.rollouts / other.whole[0]):.0f}x "
        "the rollouts/s"
    )


@contextmanager
def instant_model():
    """Yield the address of a model that answers at once."""
    port = free_port()
    process = start([sys.executable, str(HERE / "instant_model.py"), str(port)])
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()


def ours(count: int, endpoint: str) -> Cost:
    """Return what ``count`` rollouts took, with a worker that is warm."""
    from agentgym.core.config import TrainingConfig
    from agentgym.core.policy import ServedPolicy
    from agentgym.core.task import Split
    from agentgym.rollout.runner import RolloutRequest
    from agentgym.rollout.session import RolloutSession
    from agentgym.scenarios.registry import get_scenario

    scenario = str(HERE / "listing")

    def batch(name: str, size: int) -> list[RolloutRequest]:
        tasks = get_scenario(scenario).tasks(Split.TRAIN, 0, size)
        return [
            RolloutRequest(f"{name}-{i}", task, train=True, group=name, step=0)
            for i, task in enumerate(tasks)
        ]

    config = TrainingConfig.create(
        scenario=scenario, framework="langchain", agent="langchain_episode:make_agent"
    )
    policy = ServedPolicy("instant", [endpoint])
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        session = RolloutSession(config, policy, Path(folder), 1)
        with measured() as starting:
            stack.enter_context(session)
            session.run(batch("first", 1), lambda _: None)
        session.run(batch("warm", 64), lambda _: None)
        with measured() as used:
            done = session.run(batch("timed", count), lambda _: None)
            session.flush()
    if any(len(t.model_calls) != 2 or t.reward is None for t in done):
        raise SystemExit("a rollout was dropped, or made other calls")
    wall, cpu = used
    return Cost(
        "AgentGym",
        count,
        (starting[0], starting[1]),
        "once a run",
        (wall, cpu),
        cpu / count,
    )


def theirs(count: int, endpoint: str) -> Cost:
    """Return what ``count`` rollouts took, servers already up."""
    server_port = free_port()
    base = f"http://127.0.0.1:{server_port}"
    model = "instant"
    commands = [
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
    starts = tempfile.NamedTemporaryFile("r")  # noqa: SIM115 - closed with the process
    os.environ["STARTS_FILE"] = starts.name
    try:
        with httpx.Client(base_url=base, timeout=30) as client:
            wait_for(client)
            body = [{"model": model, "endpoint": endpoint, "version": 0}]
            client.post("/api/models", json=body).raise_for_status()
            processes.append(start(controller))
            ask(client, 1)  # the controller is up once it has run one
            with measured() as used:
                ask(client, count)
    finally:
        for process in processes:
            process.terminate()
            process.wait()
    walls_and_cpus = [json.loads(line) for line in starts][-count:]
    cpu = mean(cpu for cpu, _ in walls_and_cpus)
    wall = mean(wall for _, wall in walls_and_cpus)
    return Cost(
        "agl-server + agl-controller",
        count,
        (wall, cpu),
        "each rollout",
        (used[0], used[1]),
        used[1] / count - cpu,
    )


def ask(client: httpx.Client, count: int) -> None:
    """Ask for so many rollouts, and wait until all have succeeded."""
    agent = "langchain_episode:Agent"
    rollout = {
        "input": {"question": "List the files."},
        "config": {"local": {"agent_class": agent}},
    }
    target = succeeded(client) + count
    for _ in range(count):
        client.post("/api/rollouts", json=[rollout]).raise_for_status()
    while succeeded(client) < target:
        time.sleep(0.1)


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
