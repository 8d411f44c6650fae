"""Sessions with real workers, and the rollouts that tests run in them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest, ServedPolicy
from agentgym.core.task import Split
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import RolloutSession
from agentgym.scenarios.registry import get_scenario

MISBEHAVING = "tests.rollout.misbehaving:make_agent"


def list_then_answer(request: ChatRequest) -> Reply:
    """Call a tool once, then answer."""
    if request.messages[-1]["role"] == "tool":
        return Reply(content="Done.")
    return Reply(calls=[("list_files", {})])


def requests(count: int, *, seed: int = 0) -> list[RolloutRequest]:
    """Return rollouts of different tasks."""
    tasks = get_scenario("coding").tasks(Split.TRAIN, seed, count)
    return [
        RolloutRequest(f"r{seed}-{i:03d}", task, train=True, group=f"g{i}", step=1)
        for i, task in enumerate(tasks)
    ]


@contextmanager
def session(
    folder: Path,
    policy: ScriptedPolicy | ServedPolicy | None = None,
    workers: int = 1,
    **settings: object,
) -> Iterator[RolloutSession]:
    """Open a session, with a scripted policy unless another one is given."""
    config = TrainingConfig.create(**settings)
    chosen = policy or ScriptedPolicy(list_then_answer)
    with RolloutSession(config, chosen, folder, workers) as opened:
        yield opened


def write_down(folder: Path, request: RolloutRequest, misdeed: str) -> None:
    """Let the agent do ``misdeed`` when it comes to the task of ``request``."""
    text = f"{request.task.instruction}\n{misdeed}"
    (folder / request.rollout_id).write_text(text)
