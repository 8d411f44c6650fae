"""CPU of a rollout of an agent as its author wrote it, beside the framework's own.

Both make the same two model calls and one tool call, against the server of
``instant_model.py``, so many at a time. The framework's own: one model client, a new
agent for each run (AutoGen: made, as its agents remember; CrewAI: copied; LangGraph's
keep nothing), its own tools. Ours: an episode of an agent that is only imported, with
its environment, its copy, and its tool led to the environment; the gateway is another
process in training, and is not in it.

    uv run python benchmarks/authored.py --rollouts 400
"""

import argparse
import asyncio
import importlib
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from machine import machine
from rollouts import HERE, instant_model

AT_ONCE = 64
KINDS = (
    "langchain",
    "langchain-graph",
    "autogen",
    "autogen-team",
    "crewai",
    "crewai-crew",
)


def main() -> None:
    """Measure each framework and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3, help="the least counts")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--of", help="framework:whose, at an endpoint; for itself")
    parser.add_argument("--endpoint", default="")
    options = parser.parse_args()
    if options.of:
        print(json.dumps(measured(options.of, options.endpoint, options.rollouts)))
        return
    print(f"{machine()}\n")
    print("| | its own, CPU-ms a run | in an episode | |")
    print("|---|---|---|---|")
    with instant_model() as endpoint:
        for kind in options.kinds:
            floor, ours = (
                asked(f"{kind}:{whose}", endpoint, options.rollouts, options.rounds)
                for whose in ("own", "ours")
            )
            print(f"| {kind} | {floor:.1f} | {ours:.1f} | {ours / floor:.2f} |")


def asked(of: str, endpoint: str, count: int, rounds: int) -> float:
    """Return what a process of its own has measured, the least of ``rounds``."""
    command = [sys.executable, __file__, "--of", of, "--endpoint", endpoint]
    command += ["--rollouts", str(count)]
    found = []
    for _ in range(rounds):
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found.append(float(told.stdout.splitlines()[-1]))
    return min(found)


def measured(of: str, endpoint: str, count: int) -> float:
    """Return the CPU milliseconds of a run, after a few that are not counted."""
    kind, _, whose = of.partition(":")
    logging.disable(logging.WARNING)  # CrewAI has some in each of its own runs
    os.environ["OPENAI_API_KEY"] = "none"
    os.environ["OPENAI_BASE_URL"] = endpoint
    if kind.startswith("crewai"):
        from agentgym.plugins.crewai.quiet import QUIET

        os.environ.update(QUIET)
    module = importlib.import_module(f"authored_{kind.partition('-')[0]}")
    if whose == "own":
        return asyncio.run(timed(module.RUNS[kind], count))
    return asyncio.run(in_episodes(kind, endpoint, count))


async def timed(run: Callable[[], Awaitable[Any]], count: int) -> float:
    """Return the CPU milliseconds of a run, so many at a time."""
    free = asyncio.Semaphore(AT_ONCE)

    async def one() -> None:
        async with free:
            await run()

    await asyncio.gather(*(one() for _ in range(AT_ONCE)))
    started = time.process_time()
    await asyncio.gather(*(one() for _ in range(count)))
    return 1000 * (time.process_time() - started) / count


async def in_episodes(kind: str, endpoint: str, count: int) -> float:
    """Return the CPU milliseconds of an episode of an agent."""
    from agentgym.core.agent import AgentSource
    from agentgym.core.task import Split
    from agentgym.core.trajectory import RolloutStatus
    from agentgym.integrations.base import Blueprint
    from agentgym.integrations.episode import Episode
    from agentgym.integrations.registry import FRAMEWORKS
    from agentgym.integrations.run import Ending, converse, run_episode
    from agentgym.scenarios.registry import get_scenario

    framework, _, what = kind.partition("-")
    scenario = get_scenario(str(HERE / "listing"))
    [task] = scenario.tasks(Split.TRAIN, 0, 1)
    blueprint = Blueprint(
        system_prompt=scenario.system_prompt(),
        tools=scenario.tools(),
        max_turns=10,
        gateway=endpoint.removesuffix("/v1"),
        api_key="none",
        model="instant",
        connections=AT_ONCE,
        agent=AgentSource(reference=f"authored_{framework}:{what or 'agent'}"),
    )
    loop = FRAMEWORKS.get(framework).create_environment(blueprint)

    async def run() -> None:
        episode = Episode(task, rollout_id="r", max_turns=10)
        ended = await run_episode(
            episode,
            lambda episode: converse(loop, episode),
            create_environment=scenario.create_environment,
            ending=Ending(),
        )
        done = [call.name for call in ended.get_tool_calls()] == ["list_files"]
        if ended.status is not RolloutStatus.SUCCEEDED or not done:
            raise SystemExit(f"a rollout was dropped: {ended.reason}")

    try:
        return await timed(run, count)
    finally:
        await loop.close()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
